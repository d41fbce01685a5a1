//! Shared locks of rows. An exclusive one is a write that leaves the row as it is.

use super::seen::{Expected, Standing};
use super::write::Write;
use super::{Isolation, Outcome, Transaction, Tree};
use crate::entry::Entry;
use crate::node::NodeRef;
use crate::pool::Access;
use crate::tree::{BTree, TreeRoot};
use crate::txn::locks::{Added, Mode, Room};
use crate::versions::{Fate, Reader, Row, Seen, decode};
use crate::{Error, Result};
use std::sync::Arc;

impl Transaction {
    pub(super) fn lock_shared(
        &mut self,
        tree: &Tree,
        key: &[u8],
        (mode, room): (Mode, Room),
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        self.prepare_row(tree, key)?;
        self.lock_shared_in(&tree.root, key, (mode, room), expected)
    }

    pub(super) fn lock_shared_in(
        &mut self,
        root: &Arc<TreeRoot>,
        key: &[u8],
        (mode, room): (Mode, Room),
        expected: Option<&Expected<'_>>,
    ) -> Result<Outcome> {
        let shared = Arc::clone(&self.shared);
        let btree = BTree::new(&shared.core, root);
        // A long value that was compared, as its entry was then.
        let mut compared = None;
        // Who does not wait for locks does not wait out of courtesy either.
        let mut courteous = expected.is_none_or(|e| e.wait);
        let patience = self.patience(courteous);
        loop {
            let ticket = shared.registry.waits().ticket();
            let leaf = btree.leaf_shared(key, Access::Normal)?;
            let node = NodeRef::new(&leaf);
            let Ok(slot) = node.search(key) else { return Ok(Outcome::Gone) };
            let payload = node.payload(slot);
            let current = decode(payload)?;
            let own = self.own_id();
            let running = current.writer != own && shared.fate(current.writer)? == Fate::Running;
            // An update leaves the key alone; a delete or an exclusive lock does not, nor does an insert, which may yet
            // be taken back.
            let stands_against = mode == Mode::Share || current.is_tombstone() || current.is_exclusive();
            let before = if running && !stands_against { self.committed(node, slot)? } else { Seen::Absent };
            if running && before == Seen::Absent {
                if shared.is_loser(current.writer) {
                    let (writer, undo) = (current.writer, current.undo);
                    // As long as the leaf is latched the loser has not ended: from now on its undo stays until this goes.
                    let _kept = self.new_snapshot();
                    drop(leaf);
                    self.take_from_loser(root, writer, undo, ticket, &patience)?;
                    continue;
                }
                let holders: Vec<_> = shared.registry.find(current.writer).into_iter().collect();
                drop(leaf);
                self.wait_for(&holders, ticket, &patience)?;
                continue;
            }
            let row = Row::of(node, slot);
            self.check_conflict(row, &current, mode)?;
            if let Some(expected) = expected
                && compared.as_deref() != Some(payload)
                && let Some(standing) = self.standing_for_lock(expected, (row, &current), before, mode)?
            {
                match standing {
                    Standing::Settled(outcome) => return Ok(outcome),
                    Standing::Long(reference) => {
                        compared = Some(payload.to_vec());
                        drop(leaf);
                        match self.compare_long(Some(expected), &reference)? {
                            Some(outcome) => return Ok(outcome),
                            None => continue,
                        }
                    }
                }
            }
            if current.is_tombstone() {
                return Ok(Outcome::Gone);
            }
            let txn = &self.writing.as_ref().expect("who locks has a number").txn;
            if courteous {
                let writers = shared.locks.ahead_of(root.id, key, txn);
                if !writers.is_empty() {
                    drop(leaf);
                    courteous = !self.wait_behind(&writers, ticket, &patience)?;
                    continue;
                }
            }
            match shared.locks.try_add(root.id, key, txn, mode, room) {
                Added::Yes => return Ok(Outcome::Done),
                // No memory for one more shared lock: the row itself has room for an exclusive one.
                Added::TableFull => {
                    drop(leaf);
                    return self.write(root, key, Write::Lock, expected);
                }
            }
        }
    }

    /// Under `REPEATABLE READ`: refuses a shared lock on a row that has changed since the snapshot.
    fn check_conflict(&self, row: Row<'_>, current: &Entry<'_>, mode: Mode) -> Result<()> {
        if let (Isolation::RepeatableRead, Some(snapshot)) = (self.options.isolation, &self.snapshot)
            && (mode == Mode::Share || current.is_tombstone())
            && let (writer, Fate::Committed(Some(csn))) =
                self.shared.last_change(Reader::new(snapshot, self.own()), row, current)?
            && !snapshot.sees(csn)
        {
            return Err(Error::Conflict(writer));
        }
        Ok(())
    }

    /// What a row that somebody is changing was before.
    fn committed<'p>(&self, leaf: NodeRef<'p>, slot: usize) -> Result<Seen<'p>> {
        let snapshot = self.new_snapshot();
        self.shared.look(Reader::new(&snapshot, self.own()), leaf, slot)
    }
}
