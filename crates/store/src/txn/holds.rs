//! Trees that writers hold, so that nobody drops them meanwhile.
//!
//! A shared lock of a tree's row in the catalog does that, and every transaction would take and give back the same few.
//! So a writer merely notes the tree in a short list of its own, and who drops a tree looks through the lists of all
//! (as PostgreSQL does with relations; "Fast Path Locking" in the README of its lock manager). While somebody is about to
//! drop a tree, any tree, and when the list is full, it is the row's lock again.
//!
//! # Invariants
//! 1. **Closed, then looked through.** Who drops a tree calls [`LockTable::close_holds`], then asks
//!    [`LockTable::holding`] under the exclusive latch of the catalog's leaf before he takes the row, and calls
//!    [`LockTable::reopen_holds`] when his transaction is over and its outcome seen by all, or the database has failed. A tree is noted only where the
//!    list's mutex is held and the way was found open. So either the note is there when the dropper comes to that list, or
//!    the writer comes after him and finds the way closed; and who was not among the active ones when the dropper asked
//!    for them began later, and finds it closed, too.
//! 2. Whoever finds the way open sees all marks ([`TreeRoot::is_settled`]) of those who dropped before: these were set
//!    before it was opened again.

use super::active::ActiveTxn;
use super::locks::LockTable;
use super::registry::Registry;
use crate::tree::TreeRoot;
use gannet_base::{TreeId, TxnId};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Trees that one transaction can hold so; for more it locks their rows.
const MOST: usize = 8;

/// The trees of one transaction, in the order in which they were noted.
pub(super) type HeldTrees = SmallVec<[TreeId; MOST]>;

impl LockTable {
    /// Keeps a tree, of this opening of the database, from being dropped by others until `txn` releases its locks. False when the
    /// caller has to lock the tree's row, and to look at it.
    pub(crate) fn try_hold(&self, root: &TreeRoot, txn: &ActiveTxn) -> bool {
        let mut held = txn.held.lock();
        if held.trees.contains(&root.id) {
            return true;
        }
        // In this order: invariant 2.
        let open = self.droppers.load(Ordering::SeqCst) == 0;
        let holds = open && root.is_settled() && held.trees.len() < MOST;
        if holds {
            held.trees.push(root.id);
        }
        holds
    }

    /// From now on, everybody who is to hold a tree locks its row. To be called before the caller's first look at a row
    /// that he is about to delete.
    pub(crate) fn close_holds(&self) {
        self.droppers.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what [`LockTable::close_holds`] began.
    pub(crate) fn reopen_holds(&self) {
        let before = self.droppers.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "holds are closed before they are reopened");
    }

    /// Who but `me` holds the tree, by way of his own list. The caller has closed that way.
    pub(crate) fn holding(&self, registry: &Registry, tree: TreeId, me: TxnId) -> Vec<Arc<ActiveTxn>> {
        assert!(self.droppers.load(Ordering::SeqCst) > 0, "holds are closed before they are looked through");
        let mut holders = registry.active();
        holders.retain(|txn| txn.id() != me && txn.held.lock().trees.contains(&tree) && !txn.has_ended());
        holders
    }
}

/// The trees that a transaction holds by way of its own list.
pub(crate) fn trees_of(txn: &ActiveTxn) -> Vec<TreeId> {
    txn.held.lock().trees.to_vec()
}
