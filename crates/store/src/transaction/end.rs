//! Savepoints, commit and rollback.

use super::{Durability, Savepoint, Transaction, Writing};
use crate::entry::UndoPtr;
use crate::log::TxnEvent;
use crate::mtr::Mtr;
use crate::mutation::{Mutation, planted};
use crate::shared::Shared;
use crate::tree::BTree;
use crate::txn::registry;
use crate::{Error, Result};
use gannet_base::Lsn;
use std::sync::Arc;

impl Transaction {
    /// A place to go back to with [`Transaction::rollback_to`]. It costs next to nothing and keeps nothing, so that each
    /// statement may take one.
    pub fn savepoint(&mut self) -> Savepoint {
        self.last_savepoint += 1;
        let writing = self.writing.as_ref();
        Savepoint {
            number: self.last_savepoint,
            undo: writing.map_or(UndoPtr::NONE, |w| UndoPtr(w.txn.newest_undo())),
            locks: writing.map(|w| self.shared.locks.mark(&w.txn)),
            owner: self.handle.number,
        }
    }

    /// Reverts everything since the savepoint, which stays valid; savepoints made after it do not. Where that fails amid it, as a page cannot be
    /// read, the transaction can only be rolled back.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if savepoint.owner != self.handle.number {
            return Err(Error::Invalid("a savepoint belongs to the transaction that made it".to_owned()));
        }
        self.lose_savepoints_after(savepoint.number)?;
        let Some(writing) = &mut self.writing else { return Ok(()) };
        writing.txn.note_revert();
        let newest = UndoPtr(writing.txn.newest_undo());
        if let Err(error) = self.shared.revert_to(newest, savepoint.undo, writing.txn.id()) {
            // Some of the changes are gone, and others are there.
            self.shared.registry.doom(writing.txn.id());
            return Err(error);
        }
        writing.txn.set_newest_undo(savepoint.undo.0);
        match savepoint.locks {
            Some(mark) => drop(self.shared.locks.release_since(&writing.txn, mark)),
            None => self.shared.locks.release_all(&writing.txn),
        }
        // Which trees are held is asked again at the next write.
        writing.trees.clear();
        // Rows came free as well, not only shared locks.
        self.shared.registry.waits().released_some(&writing.txn);
        self.changes += 1;
        Ok(())
    }

    /// Makes the savepoints taken after `number` invalid; fails when it is so itself.
    fn lose_savepoints_after(&mut self, number: u64) -> Result<()> {
        let behind = self.lost_savepoints.partition_point(|&(from, _)| from < number);
        if behind > 0 && number <= self.lost_savepoints[behind - 1].1 {
            let message = "the savepoint is gone since a rollback to an earlier one";
            return Err(Error::Invalid(message.to_owned()));
        }
        self.lost_savepoints.truncate(behind);
        if number < self.last_savepoint {
            self.lost_savepoints.push((number, self.last_savepoint));
        }
        Ok(())
    }

    /// Makes the changes visible, and durable unless the transaction is asynchronous.
    pub fn commit(mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return self.await_log() };
        let shared = Arc::clone(&self.shared);
        if writing.txn.sequence() == 0 {
            // Locks only.
            let done = shared.abort(&writing.txn, false);
            self.give_back(writing);
            return done.and_then(|()| self.await_log());
        }
        match self.log_commit(&shared, &writing) {
            Ok(()) => {
                shared.locks.release_all(&writing.txn);
                self.give_back(writing);
                Ok(())
            }
            Err(error) if writing.txn.csn() == 0 => {
                // Not in the log: the transaction is whole and can be reverted.
                let doomed = writing.txn.is_doomed();
                self.writing = Some(writing);
                Err(if doomed { self.why_doomed() } else { error })
            }
            // In the log, but nobody knows whether it is durable: the database is poisoned.
            Err(error) => Err(error),
        }
    }

    /// Waits for what others have committed, see [`Transaction::wait_for_log`]. A commit of its own is behind that in the log.
    fn await_log(&self) -> Result<()> {
        let core = &*self.shared.core;
        if self.options.durability == Durability::Async || self.behind <= core.log.durable() {
            return Ok(());
        }
        core.log.flush_commit(self.behind).inspect_err(|error| core.poison.set_by(error))
    }

    fn log_commit(&self, shared: &Shared, writing: &Writing) -> Result<()> {
        let core = &*shared.core;
        let durability = match self.options.durability {
            Durability::Sync => registry::Durability::Sync,
            Durability::Async => registry::Durability::Async,
        };
        let id = writing.txn.id();
        let append = |csn: u64| {
            core.note_time()?;
            let mut mtr = Mtr::new(core);
            mtr.group().set_txn(id, TxnEvent::Commit);
            let status = BTree::new(core, &shared.status);
            status.put_made(&mut mtr, &id.0.to_be_bytes(), 8, |_| Ok(csn.to_le_bytes()))?;
            mtr.commit()
        };
        let commit = shared.registry.commit(&writing.txn, durability, || core.log.end().0, append)?;
        if planted(Mutation::AcknowledgedEarly) {
            shared.registry.advance_visible(commit.lsn);
        } else if commit.needs_durable != Lsn::ZERO {
            let began = shared.users.commit_begins();
            let durable = core.log.flush_commit(commit.needs_durable);
            durable.inspect_err(|e| core.poison.set_by(e))?;
            if let Some(began) = began {
                shared.users.commit_ends(began);
            }
            // One of a group does it for all.
            if shared.registry.visible_csn() < commit.csn {
                shared.registry.advance_visible(core.log.durable());
            }
        }
        Ok(())
    }

    /// Reverts everything.
    pub fn rollback(mut self) -> Result<()> {
        self.end_by_rollback()
    }

    fn end_by_rollback(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let done = self.shared.abort(&writing.txn, writing.txn.sequence() > 0);
        self.give_back(writing);
        done
    }

    fn give_back(&self, writing: Writing) {
        let core = &self.shared.core;
        if writing.closed_holds {
            self.shared.locks.reopen_holds();
        }
        core.space.release(core, writing.reserved_pages);
        self.shared.give_stream(writing.stream, writing.drops);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Err(error) = self.end_by_rollback() {
            // Nobody is left to tell; the next start reverts the transaction from the log.
            self.shared.core.poison.set(format!("a rollback failed: {error}"));
        }
    }
}
