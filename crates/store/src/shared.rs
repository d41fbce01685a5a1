//! What all users of one open database share: the page layers below, the transaction tables above, and the store's
//! own trees.

use crate::archive;
use crate::changes::Changes;
use crate::compact::Layout;
use crate::core::Core;
use crate::entry::{Entry, UndoPtr};
use crate::hot::HotPages;
use crate::jobs::Users;
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::node::NodeRef;
use crate::outlook::Notes;
use crate::overflow;
use crate::pool::{Pool, Volume};
use crate::restart::{ROOM_PAUSE, Restart};
use crate::sweep::limit::Holders;
use crate::sweep::turn::Turn;
use crate::tree::{BTree, TreeRoot, fits, is_underfull};
use crate::txn::active::ActiveTxn;
use crate::txn::locks::LockTable;
use crate::txn::registry::Registry;
use crate::undo::{self, Segment, Stream, UndoKind, UndoRecord};
use crate::work::Room;
use crate::writeback::PageWriter;
use crate::{Result, log};
use gannet_base::clock::{self, Instant};
use gannet_base::sync::{Condvar, Mutex};
use gannet_base::{PageId, TreeId, TxnId};
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The catalog: one entry for each tree, versioned like any row.
pub(crate) const CATALOG: TreeId = TreeId(1);
/// Which transactions committed, and when. Unversioned.
pub(crate) const STATUS: TreeId = TreeId(2);
/// Where undo segments lie. Unversioned.
pub(crate) const UNDO_DIRECTORY: TreeId = TreeId(3);
/// The first number a user's tree gets.
pub(crate) const FIRST_USER_TREE: u32 = 16;

/// Undo streams nobody writes to now, and complete segments that wait for the horizon.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    idle: Vec<Stream>,
    next: u32,
    pub(crate) complete: VecDeque<Segment>,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Each opening of a database in this process has another number: its trees are known by it.
    pub(crate) opening: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) locks: LockTable,
    pub(crate) catalog: Arc<TreeRoot>,
    pub(crate) status: TreeRoot,
    pub(crate) undo_directory: TreeRoot,
    pub(crate) streams: Mutex<Streams>,
    pub(crate) writer: Arc<PageWriter>,
    /// Trees by number, as they were opened.
    pub(crate) trees: Mutex<BTreeMap<TreeId, Arc<TreeRoot>>>,
    pub(crate) next_tree: Mutex<u32>,
    /// Tells the background thread that there may be something to do, or that it shall end.
    pub(crate) stopping: Mutex<bool>,
    pub(crate) background: Condvar,
    /// Whose turn it is to sweep.
    pub(crate) sweeping: Turn,
    /// Limits on how long garbage is held back.
    pub(crate) holders: Holders,
    /// Figures of the last hour.
    pub(crate) notes: Notes,
    /// What jobs know of users.
    pub(crate) users: Arc<Users>,
    /// Who goes through the file as a whole, and who moves what that one relies on.
    pub(crate) layout: Layout,
    /// Held while the file is being compacted.
    pub(crate) compacting: Mutex<()>,
    /// When the last page of a long value was moved whose old place is kept as it was for those who may still look there.
    pub(crate) moved_values: Mutex<Option<Instant>>,
    /// Undo segments freed since the start.
    pub(crate) segments_swept: AtomicU64,
    /// Changes that no transaction's number tells of, each before it is seen: what was taken back, or freed as garbage.
    pub(crate) undone_or_swept: AtomicU64,
    /// The first transaction number of this life: whoever has a lower one and has not ended was cut short by a crash.
    pub(crate) first_txn: TxnId,
    /// What is left to be done since the database was opened.
    pub(crate) restart: Arc<Restart>,
    pub(crate) hot_pages: HotPages,
    pub(crate) changes: Arc<Changes>,
    /// How the archive is doing, where there is one.
    pub(crate) archive: Option<Arc<archive::Status>>,
    /// What keeps the file ours; goes last.
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) attachment: Attachment,
}

/// A database's place among the engine's page frames, and its lock: both last as long as anybody can reach a page.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) pool: Arc<Pool>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) _lock: Arc<dyn Any + Send + Sync>,
    /// What the log takes of the budget.
    pub(crate) _log_room: Room,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.volume.set_writer(None);
        self.volume.set_redo(None);
        self.pool.detach(&self.volume);
    }
}

impl Streams {
    /// All idle streams, to be given back with [`Streams::give_idle`].
    pub(crate) fn take_idle(&mut self) -> Vec<Stream> {
        std::mem::take(&mut self.idle)
    }

    /// Segments that no running transaction writes to.
    pub(crate) fn resting(&self) -> impl Iterator<Item = Segment> {
        self.complete.iter().copied().chain(self.idle.iter().filter_map(Stream::newest_segment))
    }

    pub(crate) fn give_idle(&mut self, streams: Vec<Stream>) {
        // One without a segment is as good as none.
        self.idle.extend(streams.into_iter().filter(Stream::has_segment));
    }
}

impl Shared {
    /// A number no tree has ever had: the pages of a dropped tree are found by it until sweep has freed them.
    pub(crate) fn new_tree_id(&self) -> Result<TreeId> {
        let mut next = self.next_tree.lock();
        let id = *next;
        if id >= u32::MAX - 1 {
            return Err(crate::Error::Invalid("the database has used up its tree numbers".to_owned()));
        }
        // Not taken back when the creation is.
        BTree::new(&self.core, &self.status)
            .put(&crate::catalog::NEXT_TREE, &u64::from(id + 1).to_le_bytes())?;
        *next = id + 1;
        Ok(TreeId(id))
    }

    /// A stream for a transaction that begins to write.
    pub(crate) fn take_stream(&self) -> Stream {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.idle.pop() {
            return stream;
        }
        streams.next += 1;
        Stream::new(streams.next)
    }

    /// Takes a stream back from a transaction that has ended. With `drops`, the transaction has dropped a tree, whose
    /// pages should not wait until others have filled the segment that says so; nor should many pages of long values.
    pub(crate) fn give_stream(&self, mut stream: Stream, drops: bool) {
        // What cannot be completed now is completed later.
        let drops = drops || stream.keeps_much(&self.core);
        let complete =
            if drops { stream.complete(&self.core, &self.undo_directory).unwrap_or(None) } else { None };
        let mut streams = self.streams.lock();
        streams.complete.extend(complete);
        streams.idle.push(stream);
    }

    /// Refuses a handle that does not belong to this opening of the database: nobody would tell it that its tree is gone.
    pub(crate) fn check_handle(&self, tree: &TreeRoot) -> Result<()> {
        if tree.opening == self.opening {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&tree.name);
        Err(crate::Error::Invalid(format!(
            "the handle of tree {name:?} is of another database, or of an earlier opening: look the tree up again"
        )))
    }

    /// A handle to a tree whose catalog entry was seen.
    pub(crate) fn tree_root(&self, id: TreeId, root: PageId, name: &[u8]) -> Arc<TreeRoot> {
        let mut trees = self.trees.lock();
        let entry = trees.entry(id).or_insert_with(|| Arc::new(TreeRoot::new(id, root, name, self.opening)));
        Arc::clone(entry)
    }

    /// Where a tree is, for those who know it only by number: rollback and sweep. `None` when it is gone.
    pub(crate) fn find_tree(&self, id: TreeId) -> Option<Arc<TreeRoot>> {
        if id == CATALOG {
            return Some(Arc::clone(&self.catalog));
        }
        self.trees.lock().get(&id).cloned()
    }

    /// Brings an entry back to what an undo record says, unless that happened already. `privileged`: may use the space
    /// kept for rollbacks.
    pub(crate) fn revert(&self, at: UndoPtr, record: &UndoRecord) -> Result<()> {
        if record.done {
            return Ok(());
        }
        let Some(root) = self.tree_of_record(record)? else { return Ok(()) };
        if record.kind == UndoKind::Chain {
            return overflow::free(&self.core, record.tree, at, record);
        }
        // A lock leaves the entry, and the tree that it describes, as it was.
        if record.tree == CATALOG && record.kind != UndoKind::Lock {
            self.free_created_tree(&root, at, record)?;
        }
        self.revert_entry(&BTree::new(&self.core, &root), at, record)
    }

    fn tree_of_record(&self, record: &UndoRecord) -> Result<Option<Arc<TreeRoot>>> {
        if let Some(root) = self.find_tree(record.tree) {
            return Ok(Some(root));
        }
        // A tree that was created by the very transaction that is reverted, and whose creation is reverted already.
        Ok(None)
    }

    /// Before a catalog entry is reverted: frees the tree that it created, or empties the one that was loaded under it.
    /// Nobody but the creator has ever seen it.
    fn free_created_tree(&self, catalog: &TreeRoot, at: UndoPtr, record: &UndoRecord) -> Result<()> {
        let Some(payload) = BTree::new(&self.core, catalog).get(&record.key)? else { return Ok(()) };
        let current = crate::versions::decode(&payload)?;
        if current.writer != record.writer || current.undo != at {
            return Ok(());
        }
        let before = crate::catalog::decode(&record.value).map(|(id, _)| id);
        let before_root = crate::catalog::decode(&record.value).map(|(_, root)| root);
        if record.kind == UndoKind::Delete
            && let Some(tree) = before.and_then(|id| self.find_tree(id))
        {
            tree.set_dropped(TxnId::NONE, 0);
        }
        match crate::catalog::decode(current.value) {
            Some((id, _)) if before != Some(id) => {
                if let Some(tree) = self.find_tree(id) {
                    tree.set_dropped(crate::versions::NEVER_CREATED, 0);
                }
                self.free_tree(id, &|| true).map(drop)
            }
            // The record of a bulk load: the entry stayed as it was.
            Some((id, root)) if before_root == Some(root) => self.empty_tree(id, root),
            _ => Ok(()),
        }
    }

    /// Gives back all pages of a tree that nobody can see any more, as long as `go_on` says so; false when some are left.
    pub(crate) fn free_tree(&self, id: TreeId, go_on: &dyn Fn() -> bool) -> Result<bool> {
        self.trees.lock().remove(&id);
        self.core.space.free_while(&self.core, id, PageId::NONE, go_on)
    }

    /// Makes a tree that nobody else can see an empty leaf again.
    fn empty_tree(&self, id: TreeId, root: PageId) -> Result<()> {
        let mut mtr = Mtr::new(&self.core);
        let part = mtr.latch(root)?;
        BTree::format_root(&mut mtr, part, id, self.core.page_size);
        mtr.commit()?;
        self.core.space.free_while(&self.core, id, root, &|| true).map(drop)
    }

    /// The tree that an entry of the catalog describes.
    pub(crate) fn created_tree(&self, catalog: &TreeRoot, key: &[u8]) -> Result<Option<(TreeId, PageId)>> {
        let payload = BTree::new(&self.core, catalog).get(key)?;
        let Some(payload) = payload else { return Ok(None) };
        Ok(Entry::decode(&payload).and_then(|e| crate::catalog::decode(e.value)))
    }

    /// To be called before somebody sees it.
    pub(crate) fn note_undone_or_swept(&self) {
        self.undone_or_swept.fetch_add(1, Ordering::SeqCst);
    }

    fn revert_entry(&self, tree: &BTree<'_>, at: UndoPtr, record: &UndoRecord) -> Result<()> {
        loop {
            let leaf = tree.leaf_exclusive(&record.key)?;
            let node = NodeRef::new(&leaf);
            let Ok(slot) = node.search(&record.key) else { return Ok(()) };
            let current = crate::versions::decode(node.payload(slot))?;
            if current.writer != record.writer || current.undo != at {
                return Ok(());
            }
            let previous = record.previous(&current);
            let dead = previous.is_tombstone() && previous.writer < self.registry.horizon();
            let mut payload = Vec::with_capacity(previous.encoded_len());
            previous.encode(&mut payload);
            let remove = record.kind == UndoKind::Insert || dead;
            if !remove && !fits(node, Ok(slot), &record.key, payload.len()) {
                drop(leaf);
                tree.make_room(&record.key, payload.len(), Some(self.registry.horizon()), true)?;
                continue;
            }
            let mut mtr = Mtr::new(&self.core);
            let part = mtr.add(leaf);
            let undo_part = mtr.latch(at.page())?;
            if remove {
                mtr.remove_entry(part, &record.key);
            } else {
                mtr.put_entry(part, Ok(slot), &record.key, &payload);
            }
            undo::mark_latched(&mut mtr, undo_part, at, !planted(Mutation::DoneNotMarked), None);
            let underfull = is_underfull(mtr.page(part));
            self.note_undone_or_swept();
            mtr.commit()?;
            if underfull {
                tree.shrink_if_possible(&record.key)?;
            }
            return Ok(());
        }
    }

    /// Reverts a transaction's changes, newest first, down to (not including) the record `until`. What there is no room for now, on the
    /// device or in memory, is tried again until there is: nobody could go on without it, and reverting is idempotent.
    pub(crate) fn revert_to(&self, newest: UndoPtr, until: UndoPtr, txn: TxnId) -> Result<()> {
        let mut at = newest;
        while at != until && !at.is_none() {
            self.core.await_log_room();
            let reverted = undo::read_of(&self.core, at, txn)
                .and_then(|record| self.revert(at, &record).map(|()| record.previous_record));
            match reverted {
                Ok(previous) => at = previous,
                Err(error) if error.is_passing() && !self.is_stopping() => clock::sleep(ROOM_PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reverts a transaction wholly and ends it; `logged` as in [`Shared::finish_revert`].
    pub(crate) fn abort(&self, txn: &Arc<ActiveTxn>, logged: bool) -> Result<()> {
        self.registry.begin_abort(txn);
        // What could not be reverted holds its rows for ever: whoever waits for them has to be told.
        self.finish_revert(txn, logged)
            .inspect_err(|error| self.core.poison.set(format!("a rollback failed: {error}")))
    }

    /// The rest of an abort that has begun; also what happens to a loser after a crash. `logged`: whether the log has
    /// ever heard of the transaction.
    pub(crate) fn finish_revert(&self, txn: &Arc<ActiveTxn>, logged: bool) -> Result<()> {
        // A change that could not be logged is in memory, under no undo record that the transaction knows of. It must not
        // end then: whoever reads on would take it for committed.
        self.core.poison.check()?;
        let newest = UndoPtr(txn.newest_undo());
        self.revert_to(newest, UndoPtr::NONE, txn.id())?;
        if logged {
            let mut mtr = Mtr::new(&self.core);
            mtr.group().set_txn(txn.id(), log::TxnEvent::Ended);
            mtr.commit()?;
        }
        self.locks.release_all(txn);
        self.registry.finish_abort(txn);
        Ok(())
    }
}
