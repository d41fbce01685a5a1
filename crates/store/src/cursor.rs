//! Cursors: a scan that sees what its transaction changes on the way.

use crate::Result;
use crate::scan::{Bounds, Scan};
use crate::transaction::{Transaction, Tree};
use crate::view::View;

/// A transaction's view of a range of keys, in order, both ways; made by [`Transaction::cursor`]. Other than a
/// [`Scan`] it borrows its transaction and sees what that changes between two steps.
///
/// ```
/// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
/// # use std::ops::Bound;
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::new(&EngineOptions::default())?;
/// # let path = folder.path().join("data.gnt");
/// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// let mut txn = db.begin(TransactionOptions::default());
/// let tree = txn.create_tree("letters")?;
/// for letter in [b"a", b"b", b"c", b"d"] {
///     txn.put(&tree, letter, b"")?;
/// }
/// let mut cursor = txn.cursor(&tree, (Bound::Excluded(b"a"), Bound::Unbounded))?;
/// assert_eq!(cursor.next()?.map(|(key, _)| key.to_vec()), Some(b"b".to_vec()));
/// cursor.seek(b"d");
/// assert_eq!(cursor.previous()?.map(|(key, _)| key.to_vec()), Some(b"c".to_vec()));
/// // What the transaction changes in between, the cursor sees.
/// cursor.transaction().delete(&tree, b"b")?;
/// assert!(cursor.previous()?.is_none());
/// # drop(cursor);
/// # txn.rollback()?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Debug)]
pub struct Cursor<'t> {
    txn: &'t mut Transaction,
    scan: Scan,
    /// Changes of the transaction that the scan knows of.
    seen_changes: u64,
}

impl<'t> Cursor<'t> {
    /// `view` sees all changes of its own transaction, also those to come.
    pub(crate) fn new(txn: &'t mut Transaction, view: View, tree: Tree, bounds: Bounds) -> Result<Self> {
        Ok(Cursor { scan: Scan::new(view, tree, bounds)?, seen_changes: txn.changes(), txn })
    }

    /// The transaction, to be used between two steps. The cursor sees its changes.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.txn
    }

    /// See [`Scan::seek`].
    pub fn seek(&mut self, key: &[u8]) {
        self.scan.seek(key);
    }

    /// The next key and its value, or `None` behind the last one.
    #[expect(clippy::should_implement_trait, reason = "the items borrow the cursor, and steps can fail")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.refresh();
        self.scan.next()
    }

    /// The key before and its value, or `None` before the first one. From a fresh cursor: the last one.
    pub fn previous(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.refresh();
        self.scan.previous()
    }

    fn refresh(&mut self) {
        if self.seen_changes != self.txn.changes() {
            self.seen_changes = self.txn.changes();
            self.scan.look_again(self.txn.active());
        }
    }
}
