//! What one leaf holds: a function of its bytes, and of who has not committed at that moment.

use super::across::Edge;
use super::report::FILL_STEPS;
use crate::entry::{Entry, TOMBSTONE, UndoPtr, decode_reference};
use crate::jobs::Ending;
use crate::node::NodeRef;
use crate::overflow;
use crate::pool::Access;
use crate::shared::{STATUS, Shared, UNDO_DIRECTORY};
use crate::undo::{self, Circle, UndoKind};
use gannet_base::{TreeId, TxnId, checksum};
use std::sync::Arc;

/// What an entry takes beside key suffix and payload: its slot, and the payload's length.
pub(super) const ENTRY_OVERHEAD: usize = 10;

/// How many bytes of a key are its leading part, by which entries are duplicates of each other; `None` where the key makes no sense.
pub type Leading = Arc<dyn Fn(&[u8]) -> Option<usize> + Send + Sync>;

/// What leaves hold, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) leaves: u64,
    pub(super) entries: u64,
    pub(super) rows: u64,
    pub(super) dead: u64,
    pub(super) uncommitted: u64,
    pub(super) unsettled: u64,
    /// Entries whose bytes are counted: rows, without those that somebody is deleting, and what may become rows.
    pub(super) with_bytes: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    pub(super) dead_bytes: u64,
    pub(super) long_values: u64,
    pub(super) long_bytes: u64,
    pub(super) long_pages: u64,
    pub(super) page_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) free_bytes: u64,
    pub(super) fill: [u64; FILL_STEPS],
    /// Entries with the leading part of the one before, on the same leaf.
    pub(super) duplicates: u64,
    /// The first entry may have that of the last one on the leaf before.
    pub(super) goes_on: u64,
}

impl Leaf {
    pub(super) fn add(&mut self, other: &Leaf) {
        self.leaves += other.leaves;
        self.entries += other.entries;
        self.rows += other.rows;
        self.dead += other.dead;
        self.uncommitted += other.uncommitted;
        self.unsettled += other.unsettled;
        self.with_bytes += other.with_bytes;
        self.key_bytes += other.key_bytes;
        self.value_bytes += other.value_bytes;
        self.dead_bytes += other.dead_bytes;
        self.long_values += other.long_values;
        self.long_bytes += other.long_bytes;
        self.long_pages += other.long_pages;
        self.page_bytes += other.page_bytes;
        self.used_bytes += other.used_bytes;
        self.free_bytes += other.free_bytes;
        self.fill.iter_mut().zip(other.fill).for_each(|(sum, more)| *sum += more);
        self.duplicates += other.duplicates;
        self.goes_on += other.goes_on;
    }
}

/// Runs of entries with one leading part.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// The longest run that surely begins and ends on the leaf.
    pub(super) inside: u64,
    /// The longest run of all, as far as it is on the leaf.
    pub(super) longest: u64,
    /// Those that may go on on other leaves: the first, the last, or one that is both.
    pub(super) edges: Vec<Edge>,
}

/// An entry of a transaction that has not committed, of which the leaf alone does not tell whether others see a row.
#[derive(Clone, Copy, Debug)]
struct Doubtful {
    writer: TxnId,
    undo: UndoPtr,
}

/// A leaf that was looked at.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) leaf: Leaf,
    pub(super) runs: Runs,
    /// Entries that make no sense.
    pub(super) senseless: u64,
    doubtful: Vec<Doubtful>,
}

/// Looks at a leaf, whose structure has been verified. Below the `horizon` whoever has written committed, and everybody sees it.
pub(super) fn look(
    shared: &Shared,
    horizon: TxnId,
    tree: TreeId,
    node: NodeRef<'_>,
    leading: Option<&Leading>,
) -> Seen {
    let mut seen = Seen::default();
    let (page_size, used) = (shared.core.page_size, node.used_bytes());
    let leaf = &mut seen.leaf;
    (leaf.leaves, leaf.page_bytes) = (1, page_size as u64);
    (leaf.used_bytes, leaf.free_bytes) = (used as u64, node.free_space() as u64);
    leaf.fill[(used * FILL_STEPS / page_size).min(FILL_STEPS - 1)] = 1;
    leaf.entries = node.count() as u64;
    if matches!(tree, STATUS | UNDO_DIRECTORY) {
        for slot in 0..node.count() {
            seen.leaf.rows += 1;
            seen.leaf.with_bytes += 1;
            seen.leaf.key_bytes += key_len(node, slot);
            seen.leaf.value_bytes += node.payload(slot).len() as u64;
        }
        return seen;
    }
    let mut active = Active { shared, horizon, last: (TxnId::NONE, false) };
    let mut counter = leading.map(|leading| RunCounter::new(node, tree, leading));
    for slot in 0..node.count() {
        let Some(entry) = Entry::decode(node.payload(slot)) else {
            seen.senseless += 1;
            continue;
        };
        let is_live = seen.entry(&entry, &mut active, key_len(node, slot), node, slot);
        if let Some(counter) = counter.as_mut().filter(|_| is_live) {
            counter.take(slot);
        }
    }
    if let Some(counter) = counter {
        (seen.runs, seen.leaf.duplicates, seen.leaf.goes_on) = counter.finish();
    }
    seen
}

fn key_len(node: NodeRef<'_>, slot: usize) -> u64 {
    (node.prefix().len() + node.key_suffix(slot).len()) as u64
}

/// Who has not committed; the last answer is remembered.
struct Active<'s> {
    shared: &'s Shared,
    horizon: TxnId,
    last: (TxnId, bool),
}

impl Active<'_> {
    /// What a transaction that was taken back has written is gone when it ends: whoever has ended committed.
    fn contains(&mut self, writer: TxnId) -> bool {
        if self.last.0 != writer {
            self.last = (writer, self.shared.registry.find(writer).is_some());
        }
        self.last.1
    }
}

impl Seen {
    /// Counts an entry; whether it is a row, or may become one.
    fn entry(
        &mut self,
        entry: &Entry<'_>,
        active: &mut Active<'_>,
        key_len: u64,
        node: NodeRef<'_>,
        slot: usize,
    ) -> bool {
        let leaf = &mut self.leaf;
        let unsettled = !entry.writer.is_none() && entry.writer >= active.horizon;
        let uncommitted = unsettled && active.contains(entry.writer);
        leaf.unsettled += u64::from(unsettled);
        leaf.uncommitted += u64::from(uncommitted);
        if entry.is_tombstone() {
            if uncommitted {
                // What it was before has no bytes here.
                self.doubtful.push(Doubtful { writer: entry.writer, undo: entry.undo });
            } else {
                leaf.dead += 1;
                leaf.dead_bytes +=
                    (node.key_suffix(slot).len() + node.payload(slot).len() + ENTRY_OVERHEAD) as u64;
            }
            return false;
        }
        // Who has locked a row may have inserted it before.
        if uncommitted {
            self.doubtful.push(Doubtful { writer: entry.writer, undo: entry.undo });
        } else {
            leaf.rows += 1;
        }
        leaf.with_bytes += 1;
        leaf.key_bytes += key_len;
        if entry.is_overflow() {
            let (len, _) = decode_reference(entry.value);
            leaf.long_values += 1;
            leaf.long_bytes = leaf.long_bytes.saturating_add(len.min(overflow::MAX_VALUE));
            leaf.long_pages += overflow::pages_for(node.page().len(), len.min(overflow::MAX_VALUE));
        } else {
            leaf.value_bytes += entry.value.len() as u64;
        }
        true
    }

    /// Asks undo what others see in place of what has not committed. Without any latch: what is looked at may be gone, and
    /// then the transaction has ended.
    /// When it is the end of the job, what comes of it counts no more.
    pub(super) fn resolve(&mut self, shared: &Shared, access: Access<'_>, ending: &Ending) {
        for doubtful in std::mem::take(&mut self.doubtful) {
            self.leaf.rows += u64::from(is_seen(shared, doubtful, access, ending));
        }
    }
}

/// Whether others see a row where a transaction that has not committed has changed something.
fn is_seen(shared: &Shared, doubtful: Doubtful, access: Access<'_>, ending: &Ending) -> bool {
    let Doubtful { writer, mut undo } = doubtful;
    let mut circle = Circle::default();
    while !circle.closes(undo) && !ending.is_asked_for() {
        let Ok(record) = undo::read_by(&shared.core, undo, access) else { return true };
        if record.writer != writer {
            return true;
        }
        if record.kind == UndoKind::Insert {
            return false;
        }
        if record.previous_writer != writer {
            return record.previous_flags & TOMBSTONE == 0;
        }
        undo = record.previous_undo;
    }
    true
}

/// Goes along the entries of a leaf and tells runs of one leading part.
struct RunCounter<'n> {
    node: NodeRef<'n>,
    tree: TreeId,
    leading: &'n Leading,
    key: Vec<u8>,
    /// The leading part of the run under way, its length, and whether it may have begun on the leaf before.
    run: Option<(Vec<u8>, u64, bool)>,
    runs: Runs,
    duplicates: u64,
    goes_on: u64,
}

impl<'n> RunCounter<'n> {
    fn new(node: NodeRef<'n>, tree: TreeId, leading: &'n Leading) -> Self {
        let (key, run) = (Vec::new(), None);
        RunCounter { node, tree, leading, key, run, runs: Runs::default(), duplicates: 0, goes_on: 0 }
    }

    fn take(&mut self, slot: usize) {
        self.key.clear();
        self.node.copy_key(slot, &mut self.key);
        let len = (self.leading)(&self.key).unwrap_or(self.key.len()).min(self.key.len());
        let part = &self.key[..len];
        match &mut self.run {
            Some((known, count, _)) if known == part => {
                *count += 1;
                self.duplicates += 1;
            }
            run => {
                // Between two keys that begin alike every key does, the fence too.
                let goes_on = run.is_none() && self.node.lower_fence().starts_with(part);
                self.goes_on += u64::from(goes_on);
                let ended = run.replace((part.to_vec(), 1, goes_on));
                if let Some((part, count, goes_on)) = ended {
                    self.end_run(&part, count, goes_on);
                }
            }
        }
    }

    fn end_run(&mut self, part: &[u8], count: u64, at_edge: bool) {
        self.runs.longest = self.runs.longest.max(count);
        if at_edge {
            let hash = checksum::seeded(u64::from(self.tree.0), part);
            self.runs.edges.push(Edge { hash, count });
        } else {
            self.runs.inside = self.runs.inside.max(count);
        }
    }

    fn finish(mut self) -> (Runs, u64, u64) {
        if let Some((part, count, goes_on)) = self.run.take() {
            let goes_on_behind = self.node.upper_fence().is_some_and(|upper| upper.starts_with(&part));
            self.end_run(&part, count, goes_on || goes_on_behind);
        }
        (self.runs, self.duplicates, self.goes_on)
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        CreateOptions, Engine, EngineOptions, Figure, LockMode, OpenOptions, StatMode, StatOptions,
        TransactionOptions,
    };
    use gannet_io::sim::SimDisk;
    use std::path::Path;
    use std::sync::Arc;

    /// Rows that somebody inserts are no rows yet, but have their bytes; those that somebody deletes are rows still, and have none.
    #[test]
    fn what_an_open_transaction_did_made_an_average_length_wrong_and_exact() {
        for (count, len) in [(100_u64, 92), (10, 20_000)] {
            let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
            let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
            let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
            let open = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
            let db = engine.create(Path::new("s.gnt"), &create, &open).unwrap();
            let begin = || db.begin(TransactionOptions::default());
            let look = |mode: StatMode| {
                let trees = Some(vec!["t".to_owned()]);
                let report = db.statistics(&StatOptions { mode, trees, ..StatOptions::default() }).unwrap();
                report.trees[0].contents.clone().unwrap()
            };
            let modes = [StatMode::Instant, StatMode::Records];
            let mut txn = begin();
            let tree = txn.create_tree("t").unwrap();
            txn.commit().unwrap();
            for found in modes.map(look) {
                assert_eq!((found.rows, found.average_row_bytes), (Figure::exact(0), Figure::exact(0)));
            }
            let mut txn = begin();
            for i in 0..count {
                txn.insert(&tree, &i.to_be_bytes(), &vec![1; len]).unwrap();
            }
            let truth = Figure::exact(8 + len as u64);
            for found in modes.map(look) {
                assert_eq!((found.rows, found.average_row_bytes), (Figure::exact(0), truth));
            }
            txn.commit().unwrap();
            let mut txn = begin();
            for i in 0..count / 2 {
                assert!(txn.delete(&tree, &i.to_be_bytes()).unwrap());
            }
            for found in modes.map(look) {
                assert_eq!((found.rows, found.average_row_bytes), (Figure::exact(count), truth));
            }
            for i in count / 2..count {
                assert!(txn.delete(&tree, &i.to_be_bytes()).unwrap());
            }
            for found in modes.map(look) {
                let average = found.average_row_bytes;
                assert_eq!(found.rows, Figure::exact(count));
                assert!(average.covers(truth.value) && average.error.is_finite(), "{average:?}");
            }
        }
    }

    /// Rows that somebody had inserted and then locked, or had changed more than 64 times, were counted as rows, and the figure said that it was exact.
    #[test]
    fn what_an_open_transaction_has_inserted_is_no_row_whatever_it_did_to_it_since() {
        let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
        let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
        let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
        let open = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
        let db = engine.create(Path::new("s.gnt"), &create, &open).unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        let tree = txn.create_tree("t").unwrap();
        txn.insert(&tree, b"old", b"value").unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin(TransactionOptions::default());
        for key in [&b"a"[..], b"b", b"c"] {
            txn.insert(&tree, key, b"value").unwrap();
        }
        for key in [&b"a"[..], b"old"] {
            assert!(txn.lock(&tree, key, LockMode::Exclusive).unwrap());
        }
        for _ in 0..200 {
            txn.update(&tree, b"b", b"other").unwrap();
        }
        for mode in [StatMode::Instant, StatMode::Records] {
            let trees = Some(vec!["t".to_owned()]);
            let report = db.statistics(&StatOptions { mode, trees, ..StatOptions::default() }).unwrap();
            assert_eq!(report.trees[0].contents.as_ref().unwrap().rows, Figure::exact(1), "{mode:?}");
        }
    }
}
