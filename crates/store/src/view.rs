//! Views: what a statement sees, apart from the transaction it belongs to.
//!
//! # What it guarantees
//! 1. A view shows what was committed at its snapshot, and of its own transaction those changes that were made before
//!    the view was taken. What the transaction changes later, through whatever it reads by the view, the view does not
//!    show: a statement never meets its own changes.
//! 2. A view holds no latch and borrows nothing. As long as it lives, the versions it shows are kept.
//! 3. When its transaction goes back to a savepoint from before the view, the view shows the rows as if they had never
//!    been changed. When its transaction has ended, it refuses ([`Error::Invalid`]). A view taken before its transaction's
//!    first write or lock stays usable, as it shows nothing of that transaction.
//!
//! # Own changes
//! The undo records of a transaction are numbered, and a number is never given twice. A view knows the number that came
//! next when it was taken; of a version written by its own transaction it looks at the undo record for the version's
//! number. As long as the transaction has written nothing since, which a counter tells, that look is saved.

use crate::entry::REFERENCE_LEN;
use crate::node::NodeRef;
use crate::pool::{Access, reads};
use crate::scan::{Bounds, Scan};
use crate::shared::Shared;
use crate::transaction::{Handle, Tree};
use crate::tree::{BTree, Division, TreeRoot, TreeSize};
use crate::txn::active::ActiveTxn;
use crate::txn::registry::Snapshot;
use crate::versions::{Contents, Reader, Seen};
use crate::work::WorkMemory;
use crate::{Error, Result, overflow};
use gannet_base::PageId;
use gannet_io::Class;
use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Keys whose pages are fetched as one batch.
const FETCH_AT_ONCE: usize = 512;
/// Leaves that are handed to the device at a time.
const FETCH_STEP: usize = 64;

/// Who is told of long values before they are read, see [`Database::begin_watched`](crate::Database::begin_watched):
/// to have their memory charged, or to have their reader wait for others that have some.
pub trait LongValues: fmt::Debug + Send + Sync {
    /// A value of `bytes` is about to be read. No page is latched. What is returned is kept as long as the store has the value in a buffer of
    /// its own; an error ends the read.
    fn expect(&self, bytes: u64) -> Result<Option<WorkMemory>>;
}

/// What a statement sees: a snapshot, and of its own transaction's changes those made before the view was taken.
///
/// Made by [`Transaction::view`](crate::Transaction::view). Cheap to clone; it can be used by several threads at once.
/// While it lives, sweep keeps what it shows.
///
/// ```
/// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, Outcome, TransactionOptions};
/// # use std::ops::Bound;
/// # let folder = tempfile::tempdir().unwrap();
/// # let engine = Engine::new(&EngineOptions::default())?;
/// # let path = folder.path().join("data.gnt");
/// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
/// let mut txn = db.begin(TransactionOptions::default());
/// let tree = txn.create_tree("numbers")?;
/// for number in 0..10u8 {
///     txn.insert(&tree, &[number], &[number])?;
/// }
/// // A statement that moves every row behind all others, and ends all the same.
/// let view = txn.view();
/// let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
/// while let Some((key, value)) = scan.next()? {
///     assert_eq!(txn.delete_seen(&view, &tree, key, value)?, Outcome::Done);
///     txn.insert(&tree, &[key[0] + 100], value)?;
/// }
/// // What it did is seen by the next one.
/// assert_eq!(txn.view().get(&tree, &[100])?, Some(vec![0]));
/// assert_eq!(view.get(&tree, &[100])?, None);
/// # drop((scan, view));
/// # txn.rollback()?;
/// # db.close()?;
/// # Ok::<(), gannet_store::Error>(())
/// ```
#[derive(Clone)]
pub struct View {
    snapshot: Arc<Snapshot>,
    /// Of its transaction. Goes last of it, behind all that it has.
    handle: Arc<Handle>,
    /// The own transaction, if it had a number.
    own: Option<Arc<ActiveTxn>>,
    /// Own changes are seen below this number.
    upto: u32,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("snapshot", &self.snapshot)
            .field("own", &self.own.as_ref().map(|own| own.id()))
            .field("upto", &self.upto)
            .finish_non_exhaustive()
    }
}

impl View {
    /// Fails with [`Error::TooOld`](crate::Error::TooOld) once it has held garbage back for longer than it may.
    pub fn check_limit(&self) -> Result<()> {
        self.snapshot.check_limit()
    }

    /// Fails once the transaction's [`Canceller`](crate::Canceller) says so.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        if self.handle.is_cancelled() { Err(crate::Error::Cancelled) } else { Ok(()) }
    }

    pub(crate) fn new(
        handle: &Arc<Handle>,
        snapshot: Arc<Snapshot>,
        own: Option<Arc<ActiveTxn>>,
        upto: u32,
    ) -> Self {
        View { handle: Arc::clone(handle), snapshot, own, upto }
    }

    /// Whether it shows the own changes of this transaction below `upto`, `own`: that it had a number.
    pub(crate) fn shows(&self, owner: u64, upto: u32, own: bool) -> bool {
        self.handle.number == owner && self.upto == upto && self.own.is_some() == own
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Own changes are seen below this number.
    pub(crate) fn upto(&self) -> u32 {
        self.upto
    }

    pub(crate) fn belongs_to(&self, shared: &Arc<Shared>, owner: u64) -> bool {
        self.handle.number == owner && Arc::ptr_eq(self.shared(), shared)
    }

    /// From now on all changes of this transaction are seen.
    pub(crate) fn set_own(&mut self, own: Option<Arc<ActiveTxn>>) {
        self.own = own;
    }

    pub(crate) fn reader(&self, copied: bool) -> Reader<'_> {
        Reader {
            snapshot: &self.snapshot,
            own: self.own.as_deref(),
            upto: self.upto,
            copied,
            long_values: self.handle.long_values.as_deref(),
            undo: Access::Normal,
        }
    }

    /// The value of `key`.
    pub fn get(&self, tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        fetch_owned(self.shared(), self.reader(false), &tree.root, key)
    }

    /// Gives the value of `key`, if there is one, to `read`, in the common case in its place, without a copy.
    ///
    /// The page may be latched meanwhile: `read` has to be short, and must not call into the store, as that could wait
    /// for a latch that waits for this one.
    pub fn with_value<T>(&self, tree: &Tree, key: &[u8], read: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        fetch(self.shared(), self.reader(false), &tree.root, key, |value| read(&value))
    }

    /// The values of many keys, in the order of `keys`. Pages that are not in memory are fetched as deep batches: the
    /// device works on all of them at once.
    pub fn multi_get<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
        multi_fetch(self.shared(), self.reader(false), &tree.root, keys)
    }

    /// Starts fetching the leaves of `keys` as one deep batch and does not wait for them (only for inner nodes on the way,
    /// should they not be in memory). For who knows early which rows will be asked for. Keys beyond the first ones, see [`View::prefetch_limit`], are ignored, as fetching too far ahead pushes out what was fetched.
    pub fn prefetch<K: AsRef<[u8]>>(&self, tree: &Tree, keys: &[K]) -> Result<()> {
        if self.shared().check_tree(self.reader(false), &tree.root)? == Contents::Nothing {
            return Ok(());
        }
        let batch = &keys[..keys.len().min(at_once(self.shared()))];
        start_fetching(self.shared(), &tree.root, batch, Class::Prefetch)
    }

    /// How many keys [`View::prefetch`] takes at a time.
    pub fn prefetch_limit(&self) -> usize {
        at_once(self.shared())
    }

    /// A cursor over the keys within `range`, forwards and backwards, that borrows nothing.
    pub fn scan(&self, tree: &Tree, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Scan> {
        Scan::new(self.clone(), tree.clone(), Bounds::new(range.0, range.1))
    }

    /// About how large a tree is, from its root and a few pages below, mostly the root alone: cheap enough to be asked for
    /// each plan. Counts what the tree holds now, whoever sees it.
    pub fn tree_size(&self, tree: &Tree) -> Result<TreeSize> {
        self.shared().check_tree(self.reader(false), &tree.root)?;
        BTree::new(&self.shared().core, &tree.root).size()
    }

    /// Where a range of a tree's keys may be divided into so many parts at most, so that they are about equally large: from inner nodes, mostly
    /// the root alone. Counts what the tree holds now, whoever sees it.
    pub fn divide(&self, tree: &Tree, range: (Bound<&[u8]>, Bound<&[u8]>), parts: usize) -> Result<Division> {
        self.shared().check_tree(self.reader(false), &tree.root)?;
        BTree::new(&self.shared().core, &tree.root).divide(&Bounds::new(range.0, range.1), parts)
    }

    /// Opens a tree that this view sees.
    pub fn tree(&self, name: &str) -> Result<Option<Tree>> {
        find_tree(self.shared(), self.reader(false), name)
    }
}

/// Opens a tree that a reader sees.
pub(crate) fn find_tree(shared: &Shared, reader: Reader<'_>, name: &str) -> Result<Option<Tree>> {
    let Some(value) = fetch_owned(shared, reader, &shared.catalog, name.as_bytes())? else {
        return Ok(None);
    };
    let (id, root) = crate::catalog::decode(&value)
        .ok_or_else(|| Error::Damaged(format!("the catalog entry of {name:?} makes no sense")))?;
    // While the snapshot keeps the tree: a tree that is gone must not come back into the table.
    Ok(Some(Tree { root: shared.tree_root(id, root, name.as_bytes()) }))
}

/// Gives what a reader sees of a key to `read`.
pub(crate) fn fetch<T>(
    shared: &Shared,
    reader: Reader<'_>,
    root: &TreeRoot,
    key: &[u8],
    read: impl FnOnce(Cow<'_, [u8]>) -> T,
) -> Result<Option<T>> {
    loop {
        if shared.check_tree(reader, root)? == Contents::Nothing {
            return Ok(None);
        }
        let reverts = reader.reverts();
        let leaf = match BTree::new(&shared.core, root).leaf_shared(key, Access::Normal) {
            // The tree may be gone with a rollback to a savepoint.
            Err(_) if reader.reverts() != reverts => continue,
            other => other?,
        };
        let node = NodeRef::new(&leaf);
        let Ok(slot) = node.search(key) else { return Ok(None) };
        let payload = node.payload(slot);
        if let [0, value @ ..] = payload {
            // Settled and short: the common case.
            return Ok(Some(read(Cow::Borrowed(value))));
        }
        let seen = shared.look(reader, node, slot);
        // Nobody keeps the undo of a transaction that has ended for this reader.
        reader.check_running()?;
        match seen? {
            Seen::Absent => return Ok(None),
            Seen::Value(value) => return Ok(Some(read(value))),
            Seen::Long(reference) => {
                drop(leaf);
                if let Some((value, _memory)) = long_value(shared, reader, reverts, &reference)? {
                    return Ok(Some(read(Cow::Owned(value))));
                }
            }
        }
    }
}

/// The value that a reader sees of a key.
pub(crate) fn fetch_owned(
    shared: &Shared,
    reader: Reader<'_>,
    root: &TreeRoot,
    key: &[u8],
) -> Result<Option<Vec<u8>>> {
    fetch(shared, reader, root, key, |value| value.into_owned())
}

/// A long value that was seen before the own transaction went back for the `reverts`-th time, and what it is charged as; `None` when
/// it has done so since: the value may have gone with that.
pub(crate) fn long_value(
    shared: &Shared,
    reader: Reader<'_>,
    reverts: u32,
    reference: &[u8; REFERENCE_LEN],
) -> Result<Option<(Vec<u8>, Option<WorkMemory>)>> {
    let value = read_long(shared, reader.long_values, reference);
    reader.check_running()?;
    if reader.reverts() != reverts { Ok(None) } else { value.map(Some) }
}

/// Reads a long value, about which `watcher` is told before.
pub(crate) fn read_long(
    shared: &Shared,
    watcher: Option<&dyn LongValues>,
    reference: &[u8; REFERENCE_LEN],
) -> Result<(Vec<u8>, Option<WorkMemory>)> {
    let memory = match watcher {
        Some(watcher) => watcher.expect(overflow::checked_reference(reference)?.0)?,
        None => None,
    };
    Ok((overflow::read(&shared.core, reference)?, memory))
}

/// The values of many keys.
pub(crate) fn multi_fetch<K: AsRef<[u8]>>(
    shared: &Shared,
    reader: Reader<'_>,
    root: &TreeRoot,
    keys: &[K],
) -> Result<Vec<Option<Vec<u8>>>> {
    if shared.check_tree(reader, root)? == Contents::Nothing {
        return Ok(vec![None; keys.len()]);
    }
    let mut values = Vec::with_capacity(keys.len());
    for batch in keys.chunks(at_once(shared)) {
        if batch.len() > 1 {
            // Foreground: somebody waits for every one of them.
            start_fetching(shared, root, batch, reads::class())?;
        }
        for key in batch {
            values.push(fetch_owned(shared, reader, root, key.as_ref())?);
        }
    }
    Ok(values)
}

fn at_once(shared: &Shared) -> usize {
    FETCH_AT_ONCE.min(shared.core.pool.frame_count() / 4).max(1)
}

/// Starts reading the leaves of `keys`. The inner nodes on the way are needed for that, and waited for: those of one level
/// as one batch. The leaves go to the device a few at a time, so that it works while the next ones are looked for.
pub(crate) fn start_fetching<K: AsRef<[u8]>>(
    shared: &Shared,
    root: &TreeRoot,
    keys: &[K],
    class: Class,
) -> Result<()> {
    let core = &shared.core;
    let btree = BTree::new(core, root);
    let queue = core.volume.pick_queue();
    let mut nodes: Vec<PageId> = Vec::with_capacity(keys.len());
    for level in (0..btree.root_level()?).rev() {
        let step = if level == 0 { FETCH_STEP } else { keys.len().max(1) };
        for part in keys.chunks(step) {
            nodes.clear();
            for key in part {
                nodes.push(btree.node_id(key.as_ref(), level)?);
            }
            if level > 0 {
                nodes.sort_unstable();
                nodes.dedup();
            }
            core.pool.prefetch_by(queue, &core.volume, &nodes, class, Access::Normal);
        }
    }
    Ok(())
}
