//! Writes to rows that a statement has seen: they go through if the row is still what was seen, and say what it is now if
//! it is not.
//!
//! # What it guarantees
//! 1. The comparison and the write happen under one latch: nobody comes between.
//! 2. A statement changes a row once. What it has changed already it does not see (its view is older), so without a word
//!    ([`Outcome::Repeated`]) a join that meets a row twice would overwrite its own change.
//! 3. Rows are compared as bytes. A row that was changed and changed back is the same row.
//!
//! A long value is compared without the latch: its pages do not change, and what is latched again afterwards is its
//! entry, byte by byte. The snapshot that the writer holds keeps the entry's header, and so its identity.

use super::write::Write;
use super::{Isolation, LockMode, Transaction, Tree};
use crate::entry::{Entry, REFERENCE_LEN};
use crate::txn::locks::Mode;
use crate::versions::{Reader, Row, Seen};
use crate::view::{View, read_long};
use crate::{Error, Result, overflow};

/// What came of a write to a row that was seen. Unless it is [`Outcome::Done`], nothing was written.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Outcome {
    /// Done: the newest version was the one seen.
    Done,
    /// The row is gone: somebody deleted it since.
    Gone,
    /// Under `READ COMMITTED`: somebody changed the row since and committed; this is its value now. Look at it, and try
    /// again with it as `seen`.
    Changed(Vec<u8>),
    /// Under `READ COMMITTED`: somebody gave the row another key since ([`Transaction::move_seen`]) and committed. What stands
    /// under its key now, if anything does, is another row.
    Moved,
    /// This very statement has changed or deleted the row already, that is, since its view was taken.
    Repeated,
}

impl Outcome {
    /// Whether it was done.
    pub fn is_done(self) -> bool {
        self == Outcome::Done
    }
}

/// What a writer takes a row for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) view: &'a View,
    pub(super) seen: &'a [u8],
    /// Whether to wait for others.
    pub(super) wait: bool,
}

/// Why a write to a row that was seen does not go through at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It does not at all.
    Settled(Outcome),
    /// This long value has to be compared first.
    Long([u8; REFERENCE_LEN]),
}

impl Transaction {
    /// Replaces a row that `view` saw with the value `seen`. Waits for uncommitted changes of others.
    ///
    /// # Errors
    /// [`Error::Conflict`] under `REPEATABLE READ` when the row has changed since the transaction's snapshot;
    /// [`Error::Invalid`] when the view is of another transaction; else as [`Transaction::update`].
    pub fn update_seen(
        &mut self,
        view: &View,
        tree: &Tree,
        key: &[u8],
        seen: &[u8],
        value: &[u8],
    ) -> Result<Outcome> {
        let expected = Expected { view, seen, wait: true };
        self.write_seen(tree, key, Write::Update(value), &expected)
    }

    /// Removes a row that `view` saw with the value `seen`. As [`Transaction::update_seen`].
    pub fn delete_seen(&mut self, view: &View, tree: &Tree, key: &[u8], seen: &[u8]) -> Result<Outcome> {
        self.write_seen(tree, key, Write::Delete, &Expected { view, seen, wait: true })
    }

    /// Removes a row that `view` saw with the value `seen`, because it is about to be put under another key: those who wait for
    /// it are told so. As [`Transaction::update_seen`].
    pub fn move_seen(&mut self, view: &View, tree: &Tree, key: &[u8], seen: &[u8]) -> Result<Outcome> {
        self.write_seen(tree, key, Write::Move, &Expected { view, seen, wait: true })
    }

    /// Locks a row that `view` saw with the value `seen`, until the transaction ends. As [`Transaction::update_seen`];
    /// without `wait` it fails with [`Error::Locked`] where it would have to wait for another transaction.
    ///
    /// [`LockMode::KeyShare`] gets along with updates: one that is under way is not waited for (the row is then compared as
    /// it was committed last), and under `REPEATABLE READ` one that was committed since the snapshot is no conflict.
    pub fn lock_seen(
        &mut self,
        view: &View,
        tree: &Tree,
        key: &[u8],
        seen: &[u8],
        mode: LockMode,
        wait: bool,
    ) -> Result<Outcome> {
        let expected = Expected { view, seen, wait };
        if mode == LockMode::Exclusive {
            return self.write_seen(tree, key, Write::Lock, &expected);
        }
        self.check_view(view)?;
        self.lock_shared(tree, key, mode.shared(), Some(&expected))
    }

    fn write_seen(
        &mut self,
        tree: &Tree,
        key: &[u8],
        write: Write<'_>,
        expected: &Expected<'_>,
    ) -> Result<Outcome> {
        self.check_view(expected.view)?;
        self.prepare_row(tree, key)?;
        self.write(&tree.root, key, write, Some(expected))
    }

    fn check_view(&self, view: &View) -> Result<()> {
        if view.belongs_to(&self.shared, self.handle.number) {
            return Ok(());
        }
        Err(Error::Invalid("a row is changed by the transaction whose view has seen it".to_owned()))
    }

    /// Why a row whose newest version this is, committed or own, is not simply written; `None` when it is.
    pub(super) fn standing(
        &self,
        expected: &Expected<'_>,
        (row, current): (Row<'_>, &Entry<'_>),
    ) -> Result<Option<Standing>> {
        if self.is_repeated(expected, row, current)? {
            return Ok(Some(Standing::Settled(Outcome::Repeated)));
        }
        if self.is_moved(expected, row, current)? {
            return Ok(Some(Standing::Settled(Outcome::Moved)));
        }
        if current.is_tombstone() {
            return Ok(Some(Standing::Settled(Outcome::Gone)));
        }
        if current.is_overflow() {
            let reference = current.value[..REFERENCE_LEN].try_into().expect("a reference has this length");
            return Ok(Some(Standing::Long(reference)));
        }
        Ok(differs(expected, current.value))
    }

    /// The same for a shared lock; `before` is the committed version under one that somebody else is writing.
    pub(super) fn standing_for_lock(
        &self,
        expected: &Expected<'_>,
        (row, current): (Row<'_>, &Entry<'_>),
        before: Seen<'_>,
        mode: Mode,
    ) -> Result<Option<Standing>> {
        match before {
            // The snapshot decides, and what it does not see is no conflict.
            _ if self.options.isolation == Isolation::RepeatableRead
                && mode == Mode::KeyShare
                && !current.is_tombstone()
                && !self.is_repeated(expected, row, current)? =>
            {
                Ok(None)
            }
            Seen::Absent => self.standing(expected, (row, current)),
            _ if self.is_moved(expected, row, current)? => Ok(Some(Standing::Settled(Outcome::Moved))),
            Seen::Value(value) => Ok(differs(expected, &value)),
            Seen::Long(reference) => Ok(Some(Standing::Long(reference))),
        }
    }

    /// Compares a long value, without a latch; gives the outcome if it is another one.
    pub(super) fn compare_long(
        &self,
        expected: Option<&Expected<'_>>,
        reference: &[u8; REFERENCE_LEN],
    ) -> Result<Option<Outcome>> {
        let Some(expected) = expected else { return Ok(None) };
        if overflow::equals(&self.shared.core, reference, expected.seen)? {
            return Ok(None);
        }
        let (value, _memory) = read_long(&self.shared, self.handle.long_values.as_deref(), reference)?;
        Ok(Some(Outcome::Changed(value)))
    }

    /// Whether somebody has given the row another key since it was seen, where that does not fail as a conflict already.
    fn is_moved(&self, expected: &Expected<'_>, row: Row<'_>, current: &Entry<'_>) -> Result<bool> {
        let reader = Reader::new(expected.view.snapshot(), self.own());
        Ok(self.options.isolation == Isolation::ReadCommitted
            && self.shared.moved_since(reader, row, current)?)
    }

    /// Whether the newest change, mere locks apart, is the own transaction's, and later than the view.
    fn is_repeated(&self, expected: &Expected<'_>, row: Row<'_>, current: &Entry<'_>) -> Result<bool> {
        let Some(own) = self.own().filter(|own| own.id() == current.writer) else { return Ok(false) };
        let upto = expected.view.upto();
        if own.sequence() <= upto {
            return Ok(false);
        }
        Ok(self.shared.own_change(own.id(), row, current)?.is_some_and(|sequence| sequence >= upto))
    }
}

fn differs(expected: &Expected<'_>, value: &[u8]) -> Option<Standing> {
    (value != expected.seen).then(|| Standing::Settled(Outcome::Changed(value.to_vec())))
}
