//! Creating, opening, dropping and filling trees.

use super::write::Write;
use super::{Transaction, Tree};
use crate::entry::{self, Entry};
use crate::mtr::Mtr;
use crate::node::{NodeRef, max_entry_len};
use crate::pool::Access;
use crate::tree::BTree;
use crate::{Error, Result, view};
use gannet_base::PageId;
use std::ops::Bound;
use std::sync::Arc;

impl Transaction {
    /// Creates a tree; [`Error::Duplicate`] when the name is taken.
    pub fn create_tree(&mut self, name: &str) -> Result<Tree> {
        if name.is_empty() || name.len() > crate::catalog::MAX_NAME {
            return Err(Error::Invalid(format!("a tree's name has 1 to {} bytes", crate::catalog::MAX_NAME)));
        }
        self.start_writing()?;
        let before = self.newest_undo();
        let result = self.create_tree_entry(name);
        if result.is_err() && self.newest_undo() != before {
            let writing = self.writing.as_ref().expect("the transaction writes");
            // As in a rollback to a savepoint: whoever waits for the name is told.
            writing.txn.note_revert();
            self.shared.revert_to(self.newest_undo(), before, writing.txn.id())?;
            writing.txn.set_newest_undo(before.0);
            self.shared.registry.waits().released_some(&writing.txn);
        }
        result
    }

    fn create_tree_entry(&mut self, name: &str) -> Result<Tree> {
        let shared = Arc::clone(&self.shared);
        let id = shared.new_tree_id()?;
        // The catalog entry comes first, under the transaction's undo; its root is filled in once allocated. A crash
        // in between finds a tree without pages, which the rollback frees as such.
        self.write(
            &shared.catalog,
            name.as_bytes(),
            Write::Insert(&crate::catalog::encode(id, PageId::NONE)),
            None,
        )
        .map(drop)?;
        let mut mtr = Mtr::new(&shared.core);
        let (root, part) = mtr.allocate(id, &[])?;
        BTree::format_root(&mut mtr, part, id, shared.core.page_size);
        mtr.commit()?;
        let entry = crate::catalog::encode(id, root);
        self.write(&shared.catalog, name.as_bytes(), Write::Update(&entry), None).map(drop)?;
        Ok(Tree { root: shared.tree_root(id, root, name.as_bytes()) })
    }

    /// Opens a tree that this transaction sees.
    pub fn tree(&mut self, name: &str) -> Result<Option<Tree>> {
        self.with_reader(|shared, reader| view::find_tree(shared, reader, name))
    }

    /// Drops a tree with everything in it; false when there is no such tree. Waits for those who write to it. Until this
    /// transaction ends, the first write of each other one to any tree costs a little more.
    pub fn drop_tree(&mut self, name: &str) -> Result<bool> {
        self.start_writing()?;
        let writing = self.writing.as_mut().expect("the transaction writes");
        if !std::mem::replace(&mut writing.closed_holds, true) {
            self.shared.locks.close_holds();
        }
        let catalog = Arc::clone(&self.shared.catalog);
        // Who makes a tree of that name from now on makes another one.
        if !self.write(&catalog, name.as_bytes(), Write::Lock, None)?.is_done() {
            return Ok(false);
        }
        let tree = self.shared.created_tree(&catalog, name.as_bytes())?;
        let sequence = self.sequence();
        let dropped = self.write(&catalog, name.as_bytes(), Write::Delete, None)?.is_done();
        if let Some(root) = tree.filter(|_| dropped).and_then(|(id, _)| self.shared.find_tree(id)) {
            root.set_dropped(self.own_id(), sequence);
        }
        self.writing.as_mut().expect("the transaction writes").drops = true;
        Ok(dropped)
    }

    /// Names of the trees this transaction sees.
    pub fn trees(&mut self) -> Result<Vec<String>> {
        let tree = Tree { root: Arc::clone(&self.shared.catalog) };
        let mut cursor = self.cursor(&tree, (Bound::Unbounded, Bound::Unbounded))?;
        let mut names = Vec::new();
        while let Some((key, _)) = cursor.next()? {
            names.push(String::from_utf8_lossy(key).into_owned());
        }
        Ok(names)
    }

    /// Fills a tree that this transaction has created, and that is still empty, from `entries` in ascending order of
    /// their keys, each once. Far faster than inserting: pages are filled once, and logged only where somebody needs that. Values have to fit a page.
    pub fn bulk_load<'e>(
        &mut self,
        tree: &Tree,
        entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
    ) -> Result<u64> {
        let mut loader = self.bulk_loader(tree)?;
        let mut count = 0;
        for (key, value) in entries {
            loader.push(key, value)?;
            count += 1;
        }
        loader.finish()?;
        Ok(count)
    }

    /// The incremental form of [`Transaction::bulk_load`].
    pub fn bulk_loader<'t>(&'t mut self, tree: &'t Tree) -> Result<BulkLoader<'t>> {
        self.prepare_bulk_load(tree)?;
        Ok(self.loader(tree))
    }

    /// Loaders for several trees, which different threads may fill at one time.
    pub fn bulk_loaders<'t>(&'t mut self, trees: &'t [Tree]) -> Result<Vec<BulkLoader<'t>>> {
        trees.iter().try_for_each(|tree| self.prepare_bulk_load(tree))?;
        Ok(trees.iter().map(|tree| self.loader(tree)).collect())
    }

    fn loader<'t>(&'t self, tree: &'t Tree) -> BulkLoader<'t> {
        let core = &*self.shared.core;
        let inner = crate::tree::BulkLoader::new(
            BTree::new(core, &tree.root),
            &self.shared.writer,
            &self.handle.cancel,
        );
        BulkLoader { inner, payload: Vec::new(), page_size: core.page_size }
    }

    fn prepare_bulk_load(&mut self, tree: &Tree) -> Result<()> {
        self.shared.check_handle(&tree.root)?;
        let created = self
            .shared
            .created_tree(&self.shared.catalog, tree.name())?
            .is_some_and(|(id, _)| id == tree.id());
        let own = self.own_id();
        let payload = BTree::new(&self.shared.core, &self.shared.catalog).get(tree.name())?;
        let writer = payload.as_deref().and_then(Entry::decode).map(|e| e.writer);
        let core = &*self.shared.core;
        let leaf = BTree::new(core, &tree.root).leaf_shared(&[], Access::Normal)?;
        let empty = NodeRef::new(&leaf).count() == 0 && leaf.id() == tree.root.root();
        drop(leaf);
        if !created || own.is_none() || writer != Some(own) || !empty {
            let message = "bulk load fills an empty tree that the same transaction has created";
            return Err(Error::Invalid(message.to_owned()));
        }
        // The rows have no undo of their own. Reverting this record, which changes nothing, empties the tree.
        let entry = crate::catalog::encode(tree.id(), tree.root.root());
        let sequence = self.sequence();
        self.write(&Arc::clone(&self.shared.catalog), tree.name(), Write::Update(&entry), None).map(drop)?;
        // A view from before it sees none of the rows, which say nothing of it.
        tree.root.set_filled(own, sequence);
        Ok(())
    }
}

/// Fills a new tree from sorted input, see [`Transaction::bulk_load`].
#[derive(Debug)]
pub struct BulkLoader<'t> {
    inner: crate::tree::BulkLoader<'t>,
    payload: Vec<u8>,
    page_size: usize,
}

impl BulkLoader<'_> {
    /// Whether an entry is short enough.
    pub fn takes(&self, key: &[u8], value: &[u8]) -> bool {
        key.len() + value.len() <= self.longest() && self.inner.takes(key.len(), 1 + value.len())
    }

    fn longest(&self) -> usize {
        max_entry_len(self.page_size) - 1 - entry::HEADER_LEN
    }

    /// Adds an entry behind all before it. After an error the loader is of no use any more.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let longest = self.longest();
        if key.len() + value.len() > longest {
            return Err(Error::Invalid(format!(
                "a row of {} bytes is too long for bulk load: with this page size at most {longest} bytes fit",
                key.len() + value.len()
            )));
        }
        self.payload.clear();
        // Written settled: who sees the tree at all sees every row of it.
        self.payload.push(0);
        self.payload.extend_from_slice(value);
        self.inner.push(key, &self.payload)
    }

    /// Completes the tree.
    pub fn finish(self) -> Result<()> {
        self.inner.finish()
    }
}
