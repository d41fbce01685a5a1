//! What a check knows before it begins: the trees, the undo segments, and which pages the log has changed last.

use super::report::{Finding, Findings, Key, Stake};
use crate::entry::{Entry, TOMBSTONE};
use crate::log::RedoTable;
use crate::shared::{CATALOG, STATUS, Shared, UNDO_DIRECTORY};
use crate::space::{EXTENT_PAGES, SYSTEM};
use crate::tree::BTree;
use crate::undo::{self, Circle, Segment, UndoKind};
use crate::work::WorkMemory;
use crate::{Error, Result, catalog};
use gannet_base::{Lsn, PageId, TreeId, TxnId};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of an undo segment that is known, with its place in a map.
const SEGMENT_BYTES: u64 = 2 * size_of::<(PageId, Segment)>() as u64;

/// Bytes that [`read_segments`] takes, about.
pub(crate) fn segments_memory(shared: &Shared) -> u64 {
    shared.resting_undo().len() as u64 * SEGMENT_BYTES
}

/// A tree that everybody may use.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) root: PageId,
    /// `None` for the store's own.
    pub(crate) name: Option<String>,
}

/// What the catalog says.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// Trees whose creation is committed, whether or not somebody is about to drop them, and the store's own.
    pub(crate) live: BTreeMap<TreeId, Known>,
    /// Trees whose creation is not: their pages need no explanation.
    pub(crate) passing: BTreeSet<TreeId>,
    /// The whole catalog could be read.
    pub(crate) complete: bool,
}

impl Trees {
    /// Reads the catalog; `findings` is told of entries that make no sense.
    pub(crate) fn read(shared: &Shared, findings: &Findings) -> Trees {
        let mut trees = Trees { complete: true, ..Trees::default() };
        for (id, root) in [
            (CATALOG, shared.catalog.root()),
            (STATUS, shared.status.root()),
            (UNDO_DIRECTORY, shared.undo_directory.root()),
        ] {
            trees.live.insert(id, Known { root, name: None });
        }
        let catalog = BTree::new(&shared.core, &shared.catalog);
        let mut from = Vec::new();
        loop {
            match catalog.first_from(&from) {
                Ok(Some((key, payload))) => {
                    trees.entry(shared, findings, &key, &payload);
                    from = key;
                    from.push(0);
                }
                Ok(None) => return trees,
                // The page is found damaged by those who go through all pages.
                Err(_) => {
                    trees.complete = false;
                    return trees;
                }
            }
        }
    }

    fn entry(&mut self, shared: &Shared, findings: &Findings, key: &[u8], payload: &[u8]) {
        let what = match self.take_entry(shared, key, payload) {
            Ok(()) => return,
            Err(what) => what,
        };
        // Its writer may have ended since the entry was read.
        match BTree::new(&shared.core, &shared.catalog).get(key) {
            Ok(Some(now)) if now == payload => {}
            Ok(Some(now)) if self.take_entry(shared, key, &now).is_err() => {}
            _ => return,
        }
        findings.add(Finding {
            page: shared.catalog.root(),
            tree: CATALOG,
            name: None,
            what,
            stake: Stake::Rows { lower: Vec::new(), upper: None },
        });
    }

    fn take_entry(&mut self, shared: &Shared, key: &[u8], payload: &[u8]) -> std::result::Result<(), String> {
        // Whoever writes an entry ends only behind it: asked in this order, an open one is never taken for committed.
        let Some(entry) = Entry::decode(payload) else { return Ok(()) };
        let is_open = !entry.writer.is_none() && shared.registry.find(entry.writer).is_some();
        let decoded = if entry.is_tombstone() { None } else { Some(catalog::decode(entry.value)) };
        let Some((tree, root)) = (match decoded {
            Some(None) => return Err(format!("the entry of tree {} makes no sense", Key(key))),
            Some(decoded) if !is_open => decoded,
            open => {
                self.passing.extend(open.flatten().map(|(tree, _)| tree));
                if is_open { committed_before(shared, key, &entry)? } else { None }
            }
        }) else {
            return Ok(());
        };
        if root.is_none() {
            return Err(format!("{tree}, {}, has no root", Key(key)));
        }
        let name = Some(String::from_utf8_lossy(key).into_owned());
        match self.live.insert(tree, Known { root, name: name.clone() }) {
            Some(other) if other.name != name => {
                Err(format!("{tree} has two names, one of them {}", Key(key)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn name(&self, tree: TreeId) -> Option<String> {
        self.live.get(&tree).and_then(|known| known.name.clone())
    }
}

/// The tree that stood in an entry before the open transaction that has changed it: whoever drops a tree takes it from nobody before he commits. `None` where
/// there was none, or where the transaction has ended meanwhile; an error says what is wrong.
fn committed_before(
    shared: &Shared,
    key: &[u8],
    entry: &Entry<'_>,
) -> std::result::Result<Option<(TreeId, PageId)>, String> {
    let (mut at, mut value) = (entry.undo, entry.value.to_vec());
    let mut circle = Circle::default();
    loop {
        if circle.closes(at) {
            return Err(format!("the history of tree {} leads back to {at:?}", Key(key)));
        }
        let Ok(record) = undo::read_of(&shared.core, at, entry.writer) else { return Ok(None) };
        if record.kind == UndoKind::Insert {
            return Ok(None);
        }
        // A lock left the value where it was.
        if record.kind != UndoKind::Lock {
            value = record.value;
        }
        if record.previous_writer != entry.writer {
            let flags = record.previous_flags;
            return Ok(if flags & TOMBSTONE != 0 { None } else { catalog::decode(&value) });
        }
        at = record.previous_undo;
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Survey {
    /// The log's end before anything was looked at: as long as it stays there, nothing has changed.
    pub(super) log_end: Lsn,
    pub(super) trees: Trees,
    pub(super) roots: BTreeMap<PageId, TreeId>,
    pub(super) segments: BTreeMap<PageId, Segment>,
    /// `None` where there is no log, or no memory for what it says, or some of that cannot be read.
    pub(super) logged: Option<RedoTable>,
    /// Versions of older transactions are settled.
    pub(super) horizon: TxnId,
    /// Pages of the file.
    pub(super) pages: u64,
}

impl Survey {
    pub(super) fn new(shared: &Shared, findings: &Findings, mut footers: WorkMemory) -> Result<Self> {
        let log_end = shared.core.log.end();
        let logged = if shared.core.is_read_only() {
            None
        } else {
            let mut unreadable = |error: Error| {
                let (what, stake) = (error.to_string(), Stake::Log);
                findings.add(Finding { page: PageId(0), tree: SYSTEM, name: None, what, stake });
            };
            match shared.core.log.last_changes(&mut footers, &mut unreadable) {
                Err(Error::Memory(_)) => None,
                other => other?,
            }
        };
        let trees = Trees::read(shared, findings);
        let roots = trees.live.iter().map(|(&tree, known)| (known.root, tree)).collect();
        Ok(Survey {
            log_end,
            trees,
            roots,
            segments: read_segments(shared, findings),
            logged,
            horizon: shared.registry.horizon(),
            pages: shared.core.space.capacity(),
        })
    }

    /// The last change of a page that the log knows of.
    pub(super) fn last_change(&self, page: PageId) -> Option<Lsn> {
        // Entries behind the position where the survey began may be of changes that are not home yet, and are judged as such.
        self.logged.as_ref().and_then(|logged| logged.get(page))
    }
}

/// The undo directory; `findings` is told of entries that make no sense.
pub(crate) fn read_segments(shared: &Shared, findings: &Findings) -> BTreeMap<PageId, Segment> {
    let tree = BTree::new(&shared.core, &shared.undo_directory);
    let mut segments = BTreeMap::new();
    let mut from = Vec::new();
    let find = |what: String| {
        let (page, tree) = (shared.undo_directory.root(), UNDO_DIRECTORY);
        findings.add(Finding { page, tree, name: None, what, stake: Stake::History });
    };
    // A page that cannot be read is found by those who go through all pages.
    while let Ok(Some((key, value))) = tree.first_from(&from) {
        match Segment::decode(&key, &value) {
            Some(segment) if segment.first.is_none() || !segment.first.0.is_multiple_of(EXTENT_PAGES) => {
                find(format!("{segment:?} begins at no extent"));
            }
            Some(segment) => {
                // Sweep may have freed the other one since it was read, and this one got its extent. No two segments ever have the same key, so one that
                // is still there was there when this one was read.
                if let Some(other) = segments.insert(segment.first, segment)
                    && stands(&tree, &other)
                {
                    find(format!("{segment:?} begins where {other:?} does"));
                }
            }
            None => find(format!("the entry of {} makes no sense", Key(&key))),
        }
        from = key;
        from.push(0);
    }
    segments
}

/// Whether the directory has a segment where it was.
fn stands(directory: &BTree<'_>, segment: &Segment) -> bool {
    let key = segment.key();
    let now = directory.get(&key).ok().flatten().and_then(|value| Segment::decode(&key, &value));
    now.is_some_and(|now| now.first == segment.first)
}
