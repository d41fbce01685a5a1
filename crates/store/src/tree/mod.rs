//! B+trees on pages.
//!
//! When the root splits, its contents move into two new children, and its page stays the root. (It moves only where a file is
//! compacted, see `relocate`.) Nodes carry fence keys instead of sibling links: the next leaf is the one that covers this leaf's upper fence, found from the root
//! through inner nodes that are nearly always in memory.
//!
//! # Invariants
//! 1. Every structure change (split, merge, growing or shrinking root) is one mini-transaction that leaves a correct
//!    tree, so a crash between two of them is harmless and no reader ever needs to repair anything.
//! 2. A descent holds at most one latch, and inner nodes are read without any (validated by version): having read a
//!    child's number, it first takes the child's version and then validates the parent again. So the child still was
//!    the right one at a moment after its version was taken, and any later change of the child is noticed when the
//!    child itself is latched or validated. Who is to change a leaf takes its latch in place of its version: structure
//!    changes latch the parent before the leaf and move its version, so the parent validated behind the wait says that the
//!    leaf is the one.
//! 3. Only structure changes hold several latches: parent before child, then siblings under that parent, then the
//!    space lock. On the way down they split every inner node that might not have room for one more separator, so
//!    that a split never has to go back up (Guibas and Sedgewick 1978; Mohan and Levine, ARIES/IM, 1992, for the
//!    interplay with recovery).
//! 4. Where the root is changes only under the exclusive latch of its old page. So whoever has latched it, or taken its version, and
//!    then finds that it is the root still, has the root.
//! 5. A node is between the keys that its parent says, and a descent holds it against them: a leaf against the key that it was looked for by, and what is
//!    latched below a latched parent against the parent's entries. A page whose last write was lost is a sound node, of other keys.

mod bulk;
mod dense;
mod divide;
mod measure;
mod relocate;
mod smo;

use crate::core::Core;
use crate::node::{NodeRef, RacyNode};
use crate::page::{self, PageKind};
use crate::pool::{Access, ExclusivePage, OptimisticPage, SharedPage};
use crate::{Error, Result};
use gannet_base::sync::Mutex;
use gannet_base::{PageId, TreeId, TxnId};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

pub(crate) use bulk::{BulkLoader, fill_limit};
pub(crate) use dense::{Dense, Density, is_full};
pub use divide::Division;
pub use measure::TreeSize;
pub(crate) use relocate::Relocated;
use smo::put_image;
pub(crate) use smo::{fits, is_underfull};

/// Optimistic attempts before a descent latches its way down.
const OPTIMISTIC_ATTEMPTS: usize = 16;

/// Where a tree is, and what is cheap to remember about it.
#[derive(Debug)]
pub(crate) struct TreeRoot {
    pub(crate) id: TreeId,
    /// Number of the root page, see [`TreeRoot::root`].
    root: AtomicU64,
    /// Its key in the catalog.
    pub(crate) name: Box<[u8]>,
    /// The opening of a database that it belongs to.
    pub(crate) opening: u64,
    /// Level of the root when it was last looked at. A hint: it only decides how the root is first approached.
    root_level: AtomicU8,
    /// Somebody saw that its creation is committed. False may stand for ever: then a writer looks.
    settled: AtomicBool,
    /// The change that dropped the tree.
    dropped: Mark,
    /// The change that filled the tree by a bulk load, whose rows carry no header.
    filled: Mark,
    /// What was seen below the root when the tree's size was estimated.
    shape: Mutex<Option<measure::Shape>>,
}

/// A change that concerns a tree as a whole: its transaction (0 when there is none) and its number within that.
#[derive(Debug, Default)]
struct Mark {
    txn: AtomicU64,
    sequence: AtomicU32,
}

impl Mark {
    fn set(&self, txn: TxnId, sequence: u32) {
        // The transaction is what a reader looks for; the number is there before it.
        self.sequence.store(sequence, Ordering::SeqCst);
        self.txn.store(txn.0, Ordering::SeqCst);
    }

    fn get(&self) -> (TxnId, u32) {
        let txn = TxnId(self.txn.load(Ordering::SeqCst));
        (txn, self.sequence.load(Ordering::SeqCst))
    }
}

impl TreeRoot {
    pub(crate) fn new(id: TreeId, root: PageId, name: &[u8], opening: u64) -> Self {
        TreeRoot {
            id,
            root: AtomicU64::new(root.0),
            name: Box::from(name),
            opening,
            root_level: AtomicU8::new(0),
            settled: AtomicBool::new(false),
            dropped: Mark::default(),
            filled: Mark::default(),
            shape: Mutex::default(),
        }
    }

    /// Where the root is now; for those who look at the page invariant 4 says how to be sure.
    pub(crate) fn root(&self) -> PageId {
        PageId(self.root.load(Ordering::SeqCst))
    }

    /// The root has moved; its old page is latched exclusively.
    fn set_root(&self, root: PageId) {
        self.root.store(root.0, Ordering::SeqCst);
    }

    pub(crate) fn set_settled(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Whether its creation is known to be committed, and nobody has dropped it so far.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire) && self.dropped.get().0.is_none()
    }

    pub(crate) fn set_dropped(&self, txn: TxnId, sequence: u32) {
        self.dropped.set(txn, sequence);
    }

    /// Who dropped the tree, and by which of its changes.
    pub(crate) fn dropped(&self) -> (TxnId, u32) {
        self.dropped.get()
    }

    pub(crate) fn set_filled(&self, txn: TxnId, sequence: u32) {
        self.filled.set(txn, sequence);
    }

    /// Who filled the tree by a bulk load, and by which of its changes: until then it was empty.
    pub(crate) fn filled(&self) -> (TxnId, u32) {
        self.filled.get()
    }
}

/// A tree of a database: operations on raw keys and payloads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BTree<'c> {
    pub(crate) core: &'c Core,
    pub(crate) tree: &'c TreeRoot,
}

/// Children of an inner node, in the order in which somebody goes along the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Children {
    /// Those asked for; none when the tree has no node so high.
    pub(crate) pages: Vec<PageId>,
    /// Where the next such node begins; `None` behind the last one.
    pub(crate) next: Option<Vec<u8>>,
    /// How many the node has altogether.
    pub(crate) total: usize,
}

/// Which leaf a descent looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'k> {
    /// The one that covers the key.
    Covers(&'k [u8]),
    /// The last one with keys below this one.
    Before(&'k [u8]),
    /// The rightmost one.
    Last,
}

impl<'c> BTree<'c> {
    pub(crate) fn new(core: &'c Core, tree: &'c TreeRoot) -> Self {
        BTree { core, tree }
    }

    /// Asks for the root until what was got is the root.
    fn root_by<P>(&self, mut get: impl FnMut(PageId) -> Result<P>) -> Result<P> {
        loop {
            let id = self.tree.root();
            let page = get(id);
            if self.tree.root() == id {
                return page;
            }
        }
    }

    fn root_shared(&self) -> Result<SharedPage<'c>> {
        let root = self.root_by(|id| self.core.pool.shared(&self.core.volume, id, Access::Normal))?;
        self.is_root(&root, root.id())?;
        Ok(root)
    }

    fn root_exclusive(&self) -> Result<ExclusivePage<'c>> {
        let root = self.root_by(|id| self.core.pool.exclusive(&self.core.volume, id))?;
        self.is_root(&root, root.id())?;
        Ok(root)
    }

    /// The leaf that covers `key`, for reading.
    pub(crate) fn leaf_shared(&self, key: &[u8], access: Access<'_>) -> Result<SharedPage<'c>> {
        for _ in 0..OPTIMISTIC_ATTEMPTS {
            if let Some(leaf) = self.descend(key, 0, access)?
                && let Some(page) = leaf.into_shared()
            {
                let node = self.is_node(&page, page.id())?;
                if node.level() > 0 {
                    self.remember_level(&page);
                } else if node.covers(key) {
                    return Ok(page);
                } else {
                    // Whoever holds the parent's latch can tell which page is wrong.
                    break;
                }
            }
        }
        self.descend_latched(Target::Covers(key), 0, access)
    }

    /// The leaf that covers `key`, for changing. Whoever finds it busy queues up for it, and looks behind the wait whether it
    /// still is the one: at the parent's version, which every structure change moves.
    pub(crate) fn leaf_exclusive(&self, key: &[u8]) -> Result<ExclusivePage<'c>> {
        loop {
            for _ in 0..OPTIMISTIC_ATTEMPTS {
                // A leaf, as far as one knows, is not looked into without its latch.
                if self.tree.root_level.load(Ordering::Relaxed) == 0
                    && let Some(leaf) = self.root_leaf()?
                {
                    return Ok(leaf);
                }
                let Some(parent) = self.descend(key, 1, Access::Normal)? else { continue };
                let child = self.racy_child(&parent, key);
                if !parent.validate() {
                    continue;
                }
                let id = match child {
                    Some((0, child)) => child,
                    // It has shrunk meanwhile.
                    None if parent.id() == self.tree.root() => match self.root_leaf()? {
                        Some(leaf) => return Ok(leaf),
                        None => continue,
                    },
                    // The root, higher than we thought.
                    Some((level, _)) => {
                        self.tree.root_level.store(level + 1, Ordering::Relaxed);
                        continue;
                    }
                    None => break,
                };
                let page = match self.core.pool.exclusive(&self.core.volume, id) {
                    Ok(page) => page,
                    // The leaf may have been merged away while we asked for it.
                    Err(_) if !parent.validate() => continue,
                    Err(error) => return Err(error),
                };
                if parent.validate() {
                    if self.is_leaf(&page)?.covers(key) {
                        return Ok(page);
                    }
                    page.release_unchanged();
                    break;
                }
                page.release_unchanged();
            }
            if let Some(page) = self.leaf_exclusive_latched(key)? {
                return Ok(page);
            }
        }
    }

    /// The root, where it is a leaf, for changing; otherwise its level is known from now on.
    fn root_leaf(&self) -> Result<Option<ExclusivePage<'c>>> {
        let page = self.root_exclusive()?;
        if NodeRef::new(&page).level() == 0 {
            return Ok(Some(page));
        }
        self.remember_level(&page);
        page.release_unchanged();
        Ok(None)
    }

    /// Latches parent and child on the way down; `None` when the tree grew from a single leaf meanwhile.
    fn leaf_exclusive_latched(&self, key: &[u8]) -> Result<Option<ExclusivePage<'c>>> {
        let parent = self.descend_latched(Target::Covers(key), 1, Access::Normal)?;
        let node = NodeRef::new(&parent);
        if node.level() > 0 {
            // The parent's latch is held until the child's is taken. (Whoever holds a leaf must not wait for a node
            // above it: a structure change that holds that one may be on its way down to the leaf.)
            let page = self.child_exclusive((node, parent.id()), node.child_for(key).0)?;
            return Ok(Some(page));
        }
        drop(parent);
        self.root_leaf()
    }

    /// The node at `level` that covers `key`, or the root when the tree is lower; for reading.
    pub(crate) fn inner_shared(&self, key: &[u8], level: u8) -> Result<SharedPage<'c>> {
        self.descend_latched(Target::Covers(key), level, Access::Normal)
    }

    /// The leaf of `target`, for reading, latching parent and child on the way down.
    pub(crate) fn leaf_at(&self, target: Target<'_>, access: Access<'_>) -> Result<SharedPage<'c>> {
        self.descend_latched(target, 0, access)
    }

    /// Goes down without latches to the node at `level` that covers `key` (or the root, when the tree is lower).
    /// `None` when something changed on the way, or an inner node is asked for and the root may be a leaf.
    fn descend(&self, key: &[u8], level: u8, access: Access<'_>) -> Result<Option<OptimisticPage<'c>>> {
        let optimistic = |id| self.core.pool.optimistic(&self.core.volume, id, Access::Normal);
        let mut page = self.root_by(optimistic)?;
        let mut page_level = self.tree.root_level.load(Ordering::Relaxed);
        if page_level == 0 && level > 0 {
            return Ok(None);
        }
        if page_level <= level {
            return Ok(Some(page));
        }
        loop {
            let Some((child_level, child)) = self.racy_child(&page, key) else {
                self.forget_level(&page);
                return Ok(None);
            };
            if !page.validate() || child_level >= page_level {
                self.forget_level(&page);
                return Ok(None);
            }
            if child_level < level {
                return Ok(Some(page));
            }
            let access = if child_level == 0 { access } else { Access::Normal };
            let next = match self.core.pool.optimistic(&self.core.volume, child, access) {
                Ok(next) => next,
                // The child may have been merged away while we asked for it.
                Err(_) if !page.validate() => return Ok(None),
                Err(error) => return Err(error),
            };
            gannet_base::sync::yield_point();
            if !page.validate() {
                return Ok(None);
            }
            page = next;
            page_level = child_level;
            if page_level == level {
                return Ok(Some(page));
            }
        }
    }

    /// What a possibly changing inner node says: the level of its children, and the child for `key`.
    #[expect(unsafe_code, reason = "an optimistic read of page memory")]
    fn racy_child(&self, page: &OptimisticPage<'c>, key: &[u8]) -> Option<(u8, PageId)> {
        // SAFETY: the pool keeps the frame's memory mapped and page-aligned; inner nodes are changed by
        // `RacyNode::publish` only (see `Mtr`), and results are used only after the version was validated.
        let node = unsafe { RacyNode::new(page.address(), self.core.page_size) };
        let level = node.level().checked_sub(1)?;
        node.child_for(key).map(|(_, child)| (level, child))
    }

    /// The root's level was not what we thought.
    fn forget_level(&self, page: &OptimisticPage<'c>) {
        if page.id() == self.tree.root() {
            self.tree.root_level.store(0, Ordering::Relaxed);
        }
    }

    fn remember_level(&self, page: &[u8]) {
        self.tree.root_level.store(NodeRef::new(page).level(), Ordering::Relaxed);
    }

    fn is_node<'p>(&self, page: &'p [u8], id: PageId) -> Result<NodeRef<'p>> {
        if page::kind(page) == Some(PageKind::Node) && page::tree(page) == self.tree.id {
            return Ok(NodeRef::new(page));
        }
        let what = format!(
            "a node of {} is expected here, not {:?} of {}",
            self.tree.id,
            page::kind(page),
            page::tree(page)
        );
        Err(Error::damaged_page(id, what))
    }

    /// The same of the root, which has all keys.
    fn is_root(&self, page: &[u8], id: PageId) -> Result<()> {
        let node = self.is_node(page, id)?;
        if node.lower_fence().is_empty() && node.upper_fence().is_none() {
            return Ok(());
        }
        Err(Error::damaged_page(id, "a root that does not cover all keys"))
    }

    /// The same of what entry `slot` of a latched node leads to: one level below, with the keys up to the next entry. Another one, taken for it, would
    /// lead around in circles, and take rows of others.
    fn is_child<'p>(&self, parent: NodeRef<'_>, slot: usize, child: &'p [u8]) -> Result<NodeRef<'p>> {
        let id = parent.child(slot);
        let found = self.is_node(child, id)?;
        if parent.level().checked_sub(1) != Some(found.level()) {
            let what = format!("level {} below level {}", found.level(), parent.level());
            return Err(Error::damaged_page(id, what));
        }
        let upper = found.upper_fence();
        let ends = if slot + 1 < parent.count() {
            upper.is_some_and(|upper| parent.has_key(slot + 1, upper))
        } else {
            upper == parent.upper_fence()
        };
        if ends && parent.has_key(slot, found.lower_fence()) {
            return Ok(found);
        }
        Err(Error::damaged_page(id, "covers other keys than its parent says"))
    }

    /// Latches what entry `slot` of a node leads to, which is latched itself.
    fn child_exclusive(&self, (parent, at): (NodeRef<'_>, PageId), slot: usize) -> Result<ExclusivePage<'c>> {
        let id = parent.child(slot);
        if id == at {
            return Err(Error::damaged_page(at, "an inner node that refers to itself"));
        }
        let child = self.core.pool.exclusive(&self.core.volume, id)?;
        self.is_child(parent, slot, &child)?;
        Ok(child)
    }

    fn is_leaf<'p>(&self, page: &'p ExclusivePage<'c>) -> Result<NodeRef<'p>> {
        let node = self.is_node(page, page.id())?;
        match node.level() {
            0 => Ok(node),
            level => Err(Error::damaged_page(page.id(), format!("level {level} where a leaf is expected"))),
        }
    }

    fn descend_latched(&self, target: Target<'_>, level: u8, access: Access<'_>) -> Result<SharedPage<'c>> {
        let mut page = self.root_shared()?;
        self.remember_level(&page);
        loop {
            let node = NodeRef::new(&page);
            if node.level() <= level {
                return Ok(page);
            }
            if node.count() == 0 {
                return Err(Error::damaged_page(page.id(), "an inner node without children"));
            }
            let slot = match target {
                Target::Covers(key) => node.child_for(key).0,
                // The way may lead along nodes that end at the key: their last child it is.
                Target::Before(key) if !node.covers(key) => node.count() - 1,
                Target::Before(key) => match node.search(key) {
                    Ok(slot) | Err(slot) => slot.saturating_sub(1),
                },
                Target::Last => node.count() - 1,
            };
            let (child, child_level) = (node.child(slot), node.level() - 1);
            let access = if child_level == 0 { access } else { Access::Normal };
            // The parent's latch is held until the child's is taken.
            let next = self.core.pool.shared(&self.core.volume, child, access)?;
            self.is_child(node, slot, &next)?;
            page = next;
        }
    }

    /// The children of the inner node at `level` that covers `key`, from the one that covers it on, and the first key
    /// behind them.
    pub(crate) fn children_from(&self, key: &[u8], level: u8) -> Result<Children> {
        let page = self.inner_shared(key, level)?;
        let node = NodeRef::new(&page);
        if node.level() < level {
            return Ok(Children::default());
        }
        let (slot, _) = node.child_for(key);
        let pages = (slot..node.count()).map(|i| node.child(i)).collect();
        Ok(Children { pages, next: node.upper_fence().map(<[u8]>::to_vec), total: node.count() })
    }

    /// The children with keys below `key` of the last inner node at `level` that has any, last first, and the first key of
    /// that node.
    pub(crate) fn children_before(&self, key: &[u8], level: u8) -> Result<Children> {
        let page = self.descend_latched(Target::Before(key), level, Access::Normal)?;
        let node = NodeRef::new(&page);
        if node.level() < level {
            return Ok(Children::default());
        }
        let end = if node.covers(key) { node.search(key).unwrap_or_else(|slot| slot) } else { node.count() };
        let pages = (0..end).rev().map(|i| node.child(i)).collect();
        let lower = node.lower_fence();
        Ok(Children { pages, next: (!lower.is_empty()).then(|| lower.to_vec()), total: node.count() })
    }

    /// The level of the root, or what it was a moment ago.
    pub(crate) fn root_level(&self) -> Result<u8> {
        match self.tree.root_level.load(Ordering::Relaxed) {
            // Not known yet, or a leaf.
            0 => Ok(NodeRef::new(&self.inner_shared(&[], u8::MAX)?).level()),
            level => Ok(level),
        }
    }

    /// The node at `level` that covers `key`; reads nothing but the nodes above it, unless somebody is changing them all
    /// the time. The root when the tree is not higher. For look-ups in batches, which fetch all their nodes at once.
    pub(crate) fn node_id(&self, key: &[u8], level: u8) -> Result<PageId> {
        for _ in 0..OPTIMISTIC_ATTEMPTS {
            if self.tree.root_level.load(Ordering::Relaxed) == 0 {
                break;
            }
            let Some(parent) = self.descend(key, level + 1, Access::Normal)? else { continue };
            let child = self.racy_child(&parent, key);
            if parent.validate()
                && let Some((found, child)) = child
                && found == level
            {
                return Ok(child);
            }
        }
        self.descend_latched(Target::Covers(key), level, Access::Normal).map(|page| page.id())
    }

    // ---- raw operations of the store's own, unversioned trees -----------------------------------------------------

    /// The payload of `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let leaf = self.leaf_shared(key, Access::Normal)?;
        let node = NodeRef::new(&leaf);
        Ok(node.search(key).ok().map(|slot| node.payload(slot).to_vec()))
    }

    /// The first entry with a key of at least `from`.
    pub(crate) fn first_from(&self, from: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut from = from.to_vec();
        loop {
            let leaf = self.leaf_shared(&from, Access::Normal)?;
            let node = NodeRef::new(&leaf);
            let slot = node.search(&from).unwrap_or_else(|slot| slot);
            if slot < node.count() {
                let mut key = Vec::new();
                node.copy_key(slot, &mut key);
                return Ok(Some((key, node.payload(slot).to_vec())));
            }
            match node.upper_fence() {
                // The leaf covers `from`: so this is beyond it.
                Some(upper) => from = upper.to_vec(),
                None => return Ok(None),
            }
        }
    }
}
