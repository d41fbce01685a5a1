//! Structure check: walks everything that is reachable and compares it with what the space maps say.
//!
//! # What it guarantees
//! 1. It changes nothing but the moment at which dirty pages are written, and never fails for what it finds: damage
//!    becomes a [`Finding`] that names page, tree and fault. Bytes are proven to be a node, an undo page or an index
//!    before they are read as such.
//! 2. Every tree of the catalog, and the store's own, is walked from its root. Of each page: its kind, its tree, its
//!    structure, its level, and fences that match the separators of its parent exactly.
//! 3. Every entry decodes. While its writer is at or above the horizon, its undo pointer leads to a record of that
//!    writer, tree and key, in a segment of the undo directory; and so on to the last version that anybody may ask for.
//! 4. The list of every long value is complete and holds as many bytes as its length says.
//! 5. Each page is referred to once, its extent belongs to the tree that refers to it, and its bit is set. No bit is
//!    set that nothing explains. Explained are: whole extents of undo segments in the directory, the reserved pages in
//!    front of a space map, long values that sweep has still to free, and trees that are dropped and not yet swept.
//! 6. Every page referred to has a valid checksum on the device.
//!
//! Sweep is kept out for the time of the check. Transactions that run meanwhile make it report faults that are none.

use crate::entry::{Entry, UndoPtr, decode_reference};
use crate::meta::Meta;
use crate::mutation::{Mutation, planted};
use crate::node::{NodeRef, verify_structure};
use crate::overflow;
use crate::page::{self, PageKind, Verdict};
use crate::pool::Access;
use crate::shared::{CATALOG, STATUS, Shared, UNDO_DIRECTORY};
use crate::space::{self, EXTENT_PAGES, Extent, SYSTEM};
use crate::undo::{self, Segment, UNDO_PAGES, UndoKind, UndoRecord};
use crate::{Error, Result, catalog};
use gannet_base::{PageId, TreeId, TxnId};
use gannet_io::{AlignedBuffer, Class};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// How often a page whose bytes on the device do not verify is looked at before that counts: it may be on its way.
const LOOKS: usize = 5;
/// Most findings that are kept.
const FINDINGS_MAX: usize = 1000;

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The page, or page 0 for the database as a whole.
    pub page: PageId,
    /// The tree it belongs to, or should belong to.
    pub tree: TreeId,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {}", self.page, self.tree, self.what)
    }
}

/// What a check looked at, and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Trees walked, the store's own included.
    pub trees: u64,
    /// Pages referred to.
    pub pages: u64,
    /// Leaf entries.
    pub entries: u64,
    /// Undo records in the segments of the directory.
    pub undo_records: u64,
    /// Everything that is wrong; empty when all is well. Ends after 1000.
    pub findings: Vec<Finding>,
}

/// A page to be visited, and what its parent says of it.
struct Expected {
    page: PageId,
    /// `None` for a root.
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

struct Checker<'s> {
    shared: &'s Shared,
    report: CheckReport,
    /// Owner of each page that something refers to.
    references: BTreeMap<PageId, TreeId>,
    /// Trees that the catalog names now.
    live: BTreeMap<TreeId, PageId>,
    /// Trees whose pages need no explanation: being created, or dropped and not yet swept.
    passing: BTreeSet<TreeId>,
    /// First pages of undo segments.
    segments: BTreeSet<PageId>,
    horizon: TxnId,
}

impl Shared {
    /// See the module's head.
    pub(crate) fn check(&self) -> Result<CheckReport> {
        let _sweeping = self.sweeping.lock();
        self.writer.flush_all(Duration::MAX)?;
        let mut checker = Checker {
            shared: self,
            report: CheckReport::default(),
            references: BTreeMap::new(),
            live: BTreeMap::new(),
            passing: BTreeSet::new(),
            segments: BTreeSet::new(),
            horizon: self.registry.horizon(),
        };
        checker.run();
        Ok(checker.report)
    }
}

impl Checker<'_> {
    fn run(&mut self) {
        if let Err(error) = Meta::read(&*self.shared.core.volume.file) {
            self.find(PageId(0), SYSTEM, error);
        }
        let roots = [&*self.shared.catalog, &self.shared.status, &self.shared.undo_directory];
        for tree in roots.map(|root| (root.id, root.root)) {
            self.walk(tree.0, tree.1);
        }
        // Behind the directory and the catalog, which say what else there is.
        self.undo_segments();
        let live: Vec<_> = self.live.iter().map(|(&id, &root)| (id, root)).collect();
        for (id, root) in live {
            self.walk(id, root);
        }
        self.space();
        self.report.pages = self.references.len() as u64;
        self.device();
    }

    fn find(&mut self, page: PageId, tree: TreeId, what: impl fmt::Display) {
        if self.report.findings.len() < FINDINGS_MAX && !planted(Mutation::DamageNotTold) {
            self.report.findings.push(Finding { page, tree, what: what.to_string() });
        }
    }

    /// Notes that something refers to `page`. False when something else does already.
    fn refer(&mut self, page: PageId, tree: TreeId) -> bool {
        match self.references.insert(page, tree) {
            None => true,
            Some(other) => {
                self.find(page, tree, format_args!("is referred to twice, first by {other}"));
                false
            }
        }
    }

    /// A private copy of a page's bytes.
    fn bytes(&mut self, id: PageId, tree: TreeId) -> Option<Vec<u8>> {
        if id.is_none() || id.0 >= self.shared.core.space.capacity() {
            self.find(id, tree, "is referred to, but no page of the file");
            return None;
        }
        let core = &self.shared.core;
        match core.pool.shared(&core.volume, id, Access::Normal) {
            Ok(page) => Some(page.to_vec()),
            Err(error) => {
                self.find(id, tree, error);
                None
            }
        }
    }

    // ---- trees ------------------------------------------------------------------------------------------------

    fn walk(&mut self, tree: TreeId, root: PageId) {
        self.report.trees += 1;
        let mut open = vec![Expected { page: root, level: None, lower: Vec::new(), upper: None }];
        while let Some(expected) = open.pop() {
            if !self.refer(expected.page, tree) {
                continue;
            }
            let Some(bytes) = self.node(tree, &expected) else { continue };
            let node = NodeRef::new(&bytes);
            if node.level() == 0 {
                self.leaf(tree, expected.page, node);
            } else {
                children(node, &mut open);
            }
        }
    }

    /// The node's bytes, if it is the one that its parent expects.
    fn node(&mut self, tree: TreeId, expected: &Expected) -> Option<Vec<u8>> {
        let bytes = self.bytes(expected.page, tree)?;
        if page::kind(&bytes) != Some(PageKind::Node) || page::tree(&bytes) != tree {
            let (kind, owner) = (page::kind(&bytes), page::tree(&bytes));
            self.find(expected.page, tree, format_args!("a node is expected, not {kind:?} of {owner}"));
            return None;
        }
        if let Err(what) = verify_structure(&bytes, self.shared.core.page_size) {
            self.find(expected.page, tree, what);
            return None;
        }
        let node = NodeRef::new(&bytes);
        if expected.level.is_some_and(|level| level != node.level()) {
            let what = format!("is of level {}, not {:?}", node.level(), expected.level);
            self.find(expected.page, tree, what);
            return None;
        }
        if node.lower_fence() != expected.lower || node.upper_fence() != expected.upper.as_deref() {
            let what = format!(
                "covers {:?} to {:?}, its parent says {:?} to {:?}",
                node.lower_fence(),
                node.upper_fence(),
                expected.lower,
                expected.upper
            );
            self.find(expected.page, tree, what);
        }
        if node.level() > 0 && node.count() == 0 {
            self.find(expected.page, tree, "is an inner node without children");
        }
        Some(bytes)
    }

    fn leaf(&mut self, tree: TreeId, id: PageId, node: NodeRef<'_>) {
        let mut key = Vec::new();
        for slot in 0..node.count() {
            self.report.entries += 1;
            key.clear();
            node.copy_key(slot, &mut key);
            let payload = node.payload(slot);
            match tree {
                STATUS => self.status_entry(id, &key, payload),
                UNDO_DIRECTORY => self.directory_entry(id, &key, payload),
                _ => self.entry(tree, id, &key, payload),
            }
        }
    }

    fn status_entry(&mut self, id: PageId, key: &[u8], payload: &[u8]) {
        if payload.len() != 8 || key.len() != 8 && key != catalog::NEXT_TREE {
            self.find(
                id,
                STATUS,
                format_args!("{key:?} is no transaction's number, or has no commit number"),
            );
        }
    }

    fn directory_entry(&mut self, id: PageId, key: &[u8], payload: &[u8]) {
        let Some(segment) = Segment::decode(key, payload) else {
            return self.find(id, UNDO_DIRECTORY, format_args!("the entry of {key:?} makes no sense"));
        };
        if segment.first.is_none()
            || segment.first.0 % EXTENT_PAGES != 0
            || !self.segments.insert(segment.first)
        {
            let what = format!("segment {segment:?} begins at no extent, or where another one does");
            return self.find(id, UNDO_DIRECTORY, what);
        }
        for index in 0..EXTENT_PAGES {
            self.refer(PageId(segment.first.0 + index), UNDO_PAGES);
        }
    }

    /// An entry of a versioned tree.
    fn entry(&mut self, tree: TreeId, id: PageId, key: &[u8], payload: &[u8]) {
        let Some(entry) = Entry::decode(payload) else {
            return self.find(id, tree, format_args!("the entry of {key:?} makes no sense"));
        };
        if entry.is_tombstone() && !entry.value.is_empty() {
            self.find(id, tree, format_args!("the tombstone of {key:?} has a value"));
        }
        if tree == CATALOG {
            self.catalog_entry(id, key, &entry);
        }
        if entry.is_overflow() {
            let (len, first) = decode_reference(entry.value);
            self.long_value(tree, first, Some(len));
        }
        self.versions(tree, id, key, &entry);
    }

    fn catalog_entry(&mut self, id: PageId, key: &[u8], entry: &Entry<'_>) {
        if entry.is_tombstone() {
            return;
        }
        let Some((tree, root)) = catalog::decode(entry.value) else {
            return self.find(id, CATALOG, format_args!("the entry of tree {key:?} makes no sense"));
        };
        let written = !entry.writer.is_none() && self.shared.registry.find(entry.writer).is_some();
        if root.is_none() && !written {
            self.find(id, CATALOG, format_args!("{tree} ({key:?}) has no root"));
        } else if written {
            self.passing.insert(tree);
        } else if self.live.insert(tree, root).is_some() {
            self.find(id, CATALOG, format_args!("{tree} has two names, one of them {key:?}"));
        }
    }

    /// Follows the undo pointers of an entry as long as anybody may follow them.
    fn versions(&mut self, tree: TreeId, id: PageId, key: &[u8], entry: &Entry<'_>) {
        let (mut writer, mut at) = (entry.writer, entry.undo);
        while !writer.is_none() && writer >= self.horizon {
            let first = PageId(at.page().0 / EXTENT_PAGES * EXTENT_PAGES);
            // While the catalog is walked, the directory is not known yet.
            if tree != CATALOG && !self.segments.contains(&first) {
                return self.find(
                    id,
                    tree,
                    format_args!("{key:?} by {writer}: {at:?} lies in no undo segment"),
                );
            }
            let record = match undo::read(&self.shared.core, at) {
                Ok(record) => record,
                Err(error) => return self.find(id, tree, format_args!("{key:?} by {writer}: {error}")),
            };
            if record.writer != writer || record.tree != tree || record.key != key {
                let what = format!("{key:?} by {writer}: the undo record at {at:?} is another's: {record:?}");
                return self.find(id, tree, what);
            }
            if record.kind == UndoKind::Insert {
                return;
            }
            (writer, at) = (record.previous_writer, record.previous_undo);
        }
    }

    /// Refers to the pages of a long value; `len` bytes of it, unless part of it may be freed already.
    fn long_value(&mut self, tree: TreeId, first: PageId, len: Option<u64>) {
        let mut index = first;
        let mut pages = 0;
        while !index.is_none() {
            if !self.refer(index, tree) || self.bytes(index, tree).is_none() {
                return;
            }
            let (next, listed) = match overflow::read_index(&self.shared.core, index) {
                Ok(read) => read,
                Err(error) => return self.find(index, tree, error),
            };
            pages += listed.len() as u64;
            for id in listed {
                self.refer(id, tree);
                if let Some(bytes) = self.bytes(id, tree)
                    && (page::kind(&bytes) != Some(PageKind::Overflow) || page::tree(&bytes) != tree)
                {
                    self.find(id, tree, "a piece of a long value is expected here");
                }
            }
            index = next;
        }
        let per_page = overflow::bytes_per_page(self.shared.core.page_size) as u64;
        if len.is_some_and(|len| len.div_ceil(per_page) != pages) {
            self.find(first, tree, format_args!("a long value of {len:?} bytes has {pages} pages"));
        }
    }

    // ---- undo -------------------------------------------------------------------------------------------------

    fn undo_segments(&mut self) {
        let mut from = Vec::new();
        let mut values = Vec::new();
        loop {
            let tree = crate::tree::BTree::new(&self.shared.core, &self.shared.undo_directory);
            let next = match tree.first_from(&from) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => return self.find(self.shared.undo_directory.root, UNDO_DIRECTORY, error),
            };
            if let Some(segment) = Segment::decode(&next.0, &next.1) {
                self.undo_segment(&segment, &mut values);
            }
            from = next.0;
            from.push(0);
        }
        // Only now it is known which trees are on their way out.
        for record in values {
            if self.live.contains_key(&record.tree) || record.tree == CATALOG {
                self.long_value(record.tree, decode_reference(&record.value).1, None);
            }
        }
    }

    /// Reads a segment's records; `values` gets those that keep a long value alive until sweep comes by.
    fn undo_segment(&mut self, segment: &Segment, values: &mut Vec<UndoRecord>) {
        for index in 0..EXTENT_PAGES {
            let id = PageId(segment.first.0 + index);
            let records = match undo::read_page(&self.shared.core, id, segment) {
                Ok(Some(records)) => records,
                Ok(None) => return,
                Err(error) => return self.find(id, UNDO_PAGES, error),
            };
            for (at, record) in records {
                self.report.undo_records += 1;
                self.undo_record(at, record, values);
            }
        }
    }

    fn undo_record(&mut self, at: UndoPtr, record: UndoRecord, values: &mut Vec<UndoRecord>) {
        if record.done {
            return;
        }
        if record.writer >= self.shared.registry.next_txn() {
            let what = format!("the record at {} is by {}, who never was", at.offset(), record.writer);
            self.find(at.page(), UNDO_PAGES, what);
        }
        if record.tree == CATALOG
            && record.kind == UndoKind::Delete
            && let Some((tree, _)) = catalog::decode(&record.value)
            && !self.live.contains_key(&tree)
        {
            self.passing.insert(tree);
        }
        let replaces = matches!(record.kind, UndoKind::Update | UndoKind::Delete);
        if replaces && record.previous_flags & crate::entry::OVERFLOW != 0 {
            values.push(record);
        }
    }

    // ---- space ------------------------------------------------------------------------------------------------

    fn space(&mut self) {
        let page_size = self.shared.core.page_size;
        let per_group = space::extents_per_group(page_size);
        let mut extents = BTreeMap::new();
        for group in 0..self.shared.core.space.groups() {
            let id = space::map_page(group, page_size);
            self.refer(id, SYSTEM);
            let Some(bytes) = self.bytes(id, SYSTEM) else { continue };
            if page::kind(&bytes) != Some(PageKind::SpaceMap) {
                self.find(id, SYSTEM, "a space map is expected here");
                continue;
            }
            extents.extend((group * per_group..).zip(space::read_map(&bytes)));
        }
        let references: Vec<_> = self.references.iter().map(|(&page, &tree)| (page, tree)).collect();
        for (page, tree) in references {
            self.reference_against_map(page, tree, extents.get(&(page.0 / EXTENT_PAGES)));
        }
        for (&number, extent) in &extents {
            self.extent(number, extent);
        }
    }

    fn reference_against_map(&mut self, page: PageId, tree: TreeId, extent: Option<&Extent>) {
        let owner = if tree.0 <= UNDO_DIRECTORY.0 && page.0 < EXTENT_PAGES { SYSTEM } else { tree };
        match extent {
            None => self.find(page, tree, "no space map describes its extent"),
            Some(extent) if extent.owner != owner || extent.used & 1 << (page.0 % EXTENT_PAGES) == 0 => {
                self.find(page, tree, format_args!("is in use, but its extent says {extent:?}"));
            }
            Some(_) => {}
        }
    }

    /// Looks for pages that are marked as used, and are not.
    fn extent(&mut self, number: u64, extent: &Extent) {
        let first = number * EXTENT_PAGES;
        if extent.owner == TreeId(0) {
            if extent.used != 0 {
                self.find(PageId(first), extent.owner, format_args!("a free extent says {extent:?}"));
            }
            return;
        }
        if self.passing.contains(&extent.owner) && !self.live.contains_key(&extent.owner) {
            return;
        }
        let reserved = u64::from(extent.owner == SYSTEM) * 2;
        for index in reserved..EXTENT_PAGES {
            let page = PageId(first + index);
            if extent.used & 1 << index != 0 && !self.references.contains_key(&page) {
                self.find(page, extent.owner, "is marked as used, but nothing refers to it");
            }
        }
    }

    // ---- device -----------------------------------------------------------------------------------------------

    fn device(&mut self) {
        let mut bytes = AlignedBuffer::zeroed(self.shared.core.page_size);
        let pages: Vec<_> = self.references.iter().map(|(&page, &tree)| (page, tree)).collect();
        for (page, tree) in pages {
            // Pages of an undo segment behind its last record may never have been written.
            let fresh = tree == UNDO_PAGES;
            if let Some(what) = self.on_device(page, fresh, &mut bytes) {
                self.find(page, tree, format_args!("on the device: {what}"));
            }
        }
    }

    /// What is wrong with a page's bytes on the device.
    fn on_device(&self, page: PageId, fresh: bool, bytes: &mut AlignedBuffer) -> Option<String> {
        let core = &self.shared.core;
        let mut verdict = Verdict::Valid;
        for look in 0..LOOKS {
            if look > 0
                && let Err(error) = self.shared.writer.flush_all(Duration::MAX)
            {
                return Some(error.to_string());
            }
            if let Err(error) =
                core.volume.file.read_at(Class::Maintenance, page.0 * core.page_size as u64, bytes)
            {
                return Some(Error::from(error).to_string());
            }
            verdict = page::verify(bytes, page, core.volume.salt);
            if verdict == Verdict::Valid || fresh && verdict == Verdict::NeverWritten {
                return None;
            }
        }
        Some(format!("{verdict:?}"))
    }
}

/// The children of an inner node, each with what the node says of it.
fn children(node: NodeRef<'_>, out: &mut Vec<Expected>) {
    let key = |slot: usize| {
        let mut key = Vec::new();
        node.copy_key(slot, &mut key);
        key
    };
    for slot in 0..node.count() {
        let last = slot + 1 == node.count();
        let upper = if last { node.upper_fence().map(<[u8]>::to_vec) } else { Some(key(slot + 1)) };
        let level = Some(node.level() - 1);
        out.push(Expected { page: node.child(slot), level, lower: key(slot), upper });
    }
}
