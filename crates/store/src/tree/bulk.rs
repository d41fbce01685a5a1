//! Building a tree bottom-up from sorted input.
//!
//! Leaves are filled once, in extents of their own; each finished node hands its first
//! key and its number up to the level above. Until the very end the tree's root stays an empty leaf, so a crash or
//! an error in the middle leaves an empty tree whose other pages go when the tree does.
//!
//! # Beside the log
//! But for the first few, the log gets nothing of a leaf's contents, only that the page is to be filled ([`PageKind::Unfilled`]), unless
//! somebody needs the whole log ([`WholeLog`](crate::core::WholeLog)). PostgreSQL does so with `wal_level = minimal`.
//! 1. Nobody changes such a leaf, or sees it, before the root leads to it. The root's record is logged when all such leaves are durable
//!    at home. So whatever the log goes on with, it finds them there.
//! 2. A page's LSN is that of the record that says it is to be filled. What is at home with that LSN, or a later one, is left alone by redo;
//!    what is not becomes a page that says so, and that no tree has, unless the device has lost what it had acknowledged.
//! 3. A backup's start is behind all such records, and while it is taken there are no more; it copies the leaves as they are. Since a database
//!    was opened with an archive there are none, either; what the log has of them from before is a gap in the archive.

use super::smo::{ANYWHERE, separator};
use super::{BTree, put_image};
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::node::{NodeMut, NodeRef, max_inline_payload, max_key_len};
use crate::space::EXTENT_PAGES;
use crate::writeback::PageWriter;
use crate::{Error, Result};
use gannet_base::PageId;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Share of a leaf that is filled, in percent: a little is left for updates that grow a row, and for the headers of recent versions. With
/// 97 a page of 4 KiB has 19 rows of 200 bytes, as rivals have; with 96 it had 18.
const LEAF_FILL: usize = 97;
/// The same for inner nodes.
const INNER_FILL: usize = 90;
/// Header and a slot's fixed bytes, as the node module lays them out; an estimate on the safe side.
const NODE_OVERHEAD: usize = 64;
const ENTRY_OVERHEAD: usize = 10;
/// So many leaves are logged: to wait until they are durable at home would take longer. The trees of the simulation are small.
const LOGGED_LEAVES: u64 = if cfg!(feature = "invariants") { 2 } else { EXTENT_PAGES };
/// So many bytes of leaves that are complete are written home at a time.
const WRITTEN_TOGETHER: u64 = 4 << 20;

/// Bytes of a node of this level that are filled by whoever writes nodes anew.
pub(crate) fn fill_limit(page_size: usize, level: usize) -> usize {
    page_size * if level == 0 { LEAF_FILL } else { INNER_FILL } / 100
}

#[derive(Debug, Default)]
struct Level {
    lower: Vec<u8>,
    keys: Vec<u8>,
    payloads: Vec<u8>,
    /// Ends of key and payload of each entry.
    ends: Vec<(u32, u32)>,
}

impl Level {
    fn key(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |i| self.ends[i].0);
        &self.keys[start as usize..self.ends[index].0 as usize]
    }

    fn payload(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |i| self.ends[i].1);
        &self.payloads[start as usize..self.ends[index].1 as usize]
    }

    fn push(&mut self, key: &[u8], payload: &[u8]) {
        self.keys.extend_from_slice(key);
        self.payloads.extend_from_slice(payload);
        self.ends.push((self.keys.len() as u32, self.payloads.len() as u32));
    }

    /// Bytes of the node if `next` were the key behind it (which decides the prefix that is cut off).
    fn bytes_with(&self, next: &[u8], more_entries: usize, more_bytes: usize) -> usize {
        let count = self.ends.len() + more_entries;
        let prefix = self.lower.iter().zip(next).take_while(|(a, b)| a == b).count();
        let stored = (self.keys.len() + self.payloads.len() + more_bytes).saturating_sub(count * prefix);
        NODE_OVERHEAD + self.lower.len() + next.len() + count * ENTRY_OVERHEAD + stored
    }

    /// Bytes of the node with this upper fence. Without one nothing is cut off its keys.
    fn bytes(&self, upper: Option<&[u8]>) -> usize {
        match upper {
            Some(upper) => self.bytes_with(upper, 0, 0),
            None => {
                let stored = self.keys.len() + self.payloads.len();
                NODE_OVERHEAD + self.lower.len() + self.ends.len() * ENTRY_OVERHEAD + stored
            }
        }
    }

    fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        let (keys, payloads) = self.ends.last().copied().unwrap_or_default();
        self.keys.truncate(keys as usize);
        self.payloads.truncate(payloads as usize);
    }

    fn clear(&mut self, lower: &[u8]) {
        self.keys.clear();
        self.payloads.clear();
        self.ends.clear();
        self.lower.clear();
        self.lower.extend_from_slice(lower);
    }
}

/// Fills an empty tree with entries in ascending order of their keys.
#[derive(Debug)]
pub(crate) struct BulkLoader<'c> {
    tree: BTree<'c>,
    levels: Vec<Level>,
    /// Unused pages of the extent leaves are put in: next and end.
    extent: (PageId, PageId),
    last_page: PageId,
    last_inner: PageId,
    /// Leaves that were written.
    leaves: u64,
    /// Extents in which some of them were filled beside the log, and how many of these, from the end on, nobody was asked to write home yet.
    beside_log: Vec<Range<u64>>,
    complete: u64,
    home: &'c PageWriter,
    /// It is to end.
    cancel: &'c AtomicBool,
}

impl<'c> BulkLoader<'c> {
    /// A loader for `tree`, which must be empty and used by nobody else. It fails once `cancel` is set.
    pub(crate) fn new(tree: BTree<'c>, home: &'c PageWriter, cancel: &'c AtomicBool) -> Self {
        BulkLoader {
            tree,
            levels: vec![Level::default()],
            extent: (ANYWHERE, ANYWHERE),
            last_page: tree.tree.root(),
            last_inner: tree.tree.root(),
            leaves: 0,
            beside_log: Vec::new(),
            complete: 0,
            home,
            cancel,
        }
    }

    /// Whether an entry of such a key and payload fits.
    pub(crate) fn takes(&self, key: usize, payload: usize) -> bool {
        let page_size = self.tree.core.page_size;
        key <= max_key_len(page_size) && payload <= max_inline_payload(page_size, key)
    }

    /// Adds an entry; its key must be above all before it.
    pub(crate) fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<()> {
        if !self.takes(key.len(), payload.len()) {
            return Err(Error::Invalid(format!("a key of {} bytes does not fit a page", key.len())));
        }
        let leaf = &self.levels[0];
        if let Some(last) = leaf.ends.len().checked_sub(1)
            && leaf.key(last) >= key
        {
            return Err(Error::Invalid("bulk load needs its keys in ascending order, each once".to_owned()));
        }
        self.add(0, key, payload)
    }

    fn add(&mut self, level: usize, key: &[u8], payload: &[u8]) -> Result<()> {
        if self.levels.len() == level {
            self.levels.push(Level::default());
        }
        let limit = fill_limit(self.tree.core.page_size, level);
        let node = &self.levels[level];
        if !node.ends.is_empty() && node.bytes_with(key, 1, key.len() + payload.len()) > limit {
            let upper = match level {
                0 => separator(node.key(node.ends.len() - 1), key).to_vec(),
                _ => key.to_vec(),
            };
            self.finish_node(level, Some(&upper))?;
        }
        self.levels[level].push(key, payload);
        Ok(())
    }

    /// Writes the node of a level and tells the level above.
    fn finish_node(&mut self, level: usize, upper: Option<&[u8]>) -> Result<()> {
        self.split_overfull(level, upper)?;
        let page = self.build(level, upper);
        let lower = self.levels[level].lower.clone();
        let id = self.write(level, &page)?;
        self.levels[level].clear(upper.unwrap_or_default());
        self.add(level + 1, &lower, &id.0.to_le_bytes())
    }

    fn build(&self, level: usize, upper: Option<&[u8]>) -> Vec<u8> {
        let source = &self.levels[level];
        let mut page = vec![0; self.tree.core.page_size];
        let mut node = NodeMut::init(&mut page, self.tree.tree.id, level as u8, &source.lower, upper);
        for index in 0..source.ends.len() {
            let fitted = node.insert(index, source.key(index), source.payload(index));
            assert!(fitted, "the estimate of a node's size is on the safe side");
        }
        page
    }

    fn write(&mut self, level: usize, page: &[u8]) -> Result<PageId> {
        let (core, tree) = (self.tree.core, self.tree.tree.id);
        core.throttle(&|| self.cancel.load(Ordering::Relaxed))?;
        let is_leaf = level == 0;
        let mut mtr = Mtr::new(core);
        let (id, part) = if is_leaf {
            let id = self.next_leaf(&mut mtr)?;
            (id, mtr.add(core.pool.create(&core.volume, id)?))
        } else {
            let (id, part) = mtr.allocate(tree, &[self.last_inner])?;
            self.last_inner = id;
            (id, part)
        };
        // Nobody waits for anything while he keeps others from this.
        let may_beside = is_leaf && self.leaves >= LOGGED_LEAVES;
        match if may_beside { core.whole_log.beside() } else { None } {
            Some(_beside) => {
                mtr.fill(part, tree, page);
                mtr.commit()?;
                self.was_filled_beside(id);
            }
            None => {
                put_image(&mut mtr, part, page);
                mtr.commit()?;
            }
        }
        self.leaves += u64::from(is_leaf);
        Ok(id)
    }

    /// The page of the next leaf.
    fn next_leaf(&mut self, mtr: &mut Mtr<'_>) -> Result<PageId> {
        if self.extent.0 == self.extent.1 {
            let first = mtr.allocations().allocate_extent(self.tree.tree.id, self.last_page)?;
            self.write_complete();
            self.extent = (first, PageId(first.0 + EXTENT_PAGES));
        }
        let id = self.extent.0;
        self.extent.0 = PageId(id.0 + 1);
        self.last_page = id;
        Ok(id)
    }

    /// Remembers the extent of a leaf that has to be at home in the end.
    fn was_filled_beside(&mut self, id: PageId) {
        let start = id.0 / EXTENT_PAGES * EXTENT_PAGES;
        match self.beside_log.last_mut() {
            Some(last) if last.contains(&id.0) => return,
            Some(last) if last.end == start => last.end += EXTENT_PAGES,
            _ => self.beside_log.push(start..start + EXTENT_PAGES),
        }
        self.complete += EXTENT_PAGES;
    }

    /// Has extents written home, many at a time: nothing more will come to their pages.
    fn write_complete(&mut self) {
        if self.complete * (self.tree.core.page_size as u64) < WRITTEN_TOGETHER {
            return;
        }
        for extents in self.beside_log.iter().rev() {
            let pages = self.complete.min(extents.end - extents.start);
            self.home.write_soon(extents.end - pages..extents.end);
            self.complete -= pages;
            if self.complete == 0 {
                break;
            }
        }
    }

    /// A node is filled with the prefix cut off that its keys have in common. Its upper fence may have less of that in common (the next key
    /// is a far one), and the last node of a level has no such fence at all: then the keys are longer than was reckoned
    /// with. Gives the first half away until the rest fits.
    fn split_overfull(&mut self, level: usize, upper: Option<&[u8]>) -> Result<()> {
        while self.levels[level].bytes(upper) > self.tree.core.page_size {
            let mut first = std::mem::take(&mut self.levels[level]);
            let keep = first.ends.len() / 2;
            let upper = match level {
                0 => separator(first.key(keep - 1), first.key(keep)).to_vec(),
                _ => first.key(keep).to_vec(),
            };
            let mut rest = Level::default();
            for index in keep..first.ends.len() {
                rest.push(first.key(index), first.payload(index));
            }
            first.truncate(keep);
            self.levels[level] = first;
            self.finish_node(level, Some(&upper))?;
            rest.lower = upper;
            self.levels[level] = rest;
        }
        Ok(())
    }

    /// Completes the tree.
    pub(crate) fn finish(mut self) -> Result<()> {
        let mut level = 0;
        loop {
            self.split_overfull(level, None)?;
            if level + 1 == self.levels.len() {
                break;
            }
            self.finish_node(level, None)?;
            level += 1;
        }
        let page = self.build(level, None);
        debug_assert_eq!(usize::from(NodeRef::new(&page).level()), level);
        let core = self.tree.core;
        if !self.beside_log.is_empty() && !planted(Mutation::FilledNotHome) {
            let cancel = self.cancel;
            let check = || if cancel.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) };
            self.home.bring_home(&self.beside_log, &mut { check })?;
        }
        let mut mtr = Mtr::new(core);
        let root = mtr.latch(self.tree.tree.root())?;
        // Pages of the last extent that were not needed go back.
        while self.extent.0 < self.extent.1 {
            mtr.free(self.tree.tree.id, self.extent.0)?;
            self.extent.0 = PageId(self.extent.0.0 + 1);
        }
        put_image(&mut mtr, root, &page);
        mtr.commit().map(drop)
    }
}
