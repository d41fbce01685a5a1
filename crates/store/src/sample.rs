//! A sample of a tree: some of its leaves, chosen so that each has the same chance.
//!
//! # How leaves are chosen
//! Level by level, from the root down. Of the nodes on a level at most [`NODES`] are gone on with, of the leaves as many as were
//! asked for. The nodes of a level (those below the chosen ones) are cut into as many equal stretches as are to be
//! chosen, and one of each stretch is drawn. So every leaf has the same chance, those chosen are spread over the whole tree, and what is read is
//! bounded, however large the tree is.
//!
//! A leaf is read as the range of keys that it has in its parent, by a [`Scan`]: it shows what its view sees, whatever splits
//! and merges there are meanwhile. Leaves are read as deep batches of class maintenance, through a ring of frames of
//! the sample's own: it pushes nobody's pages out.

use crate::Result;
use crate::node::NodeRef;
use crate::pool::Access;
use crate::scan::{Scan, widest_window};
use crate::transaction::Tree;
use crate::tree::BTree;
use crate::versions::Contents;
use crate::view::View;
use gannet_base::memory::{Charge, Purpose};
use gannet_base::{PageId, random};
use gannet_io::Class;
use std::collections::VecDeque;
use std::ops::Bound;

/// Inner nodes of one level that are gone on with.
const NODES: usize = 1024;
/// Nodes fetched as one batch.
const FETCH_AT_ONCE: usize = 64;

/// Draws places among `total`, in order: one of each of as many equal stretches as are wanted.
#[derive(Debug)]
struct Strata {
    step: f64,
    drawn: u64,
    next: u64,
}

impl Strata {
    fn new(total: u64, wanted: usize) -> Self {
        let mut strata = Strata { step: (total as f64 / wanted.max(1) as f64).max(1.0), drawn: 0, next: 0 };
        strata.next = strata.draw();
        strata
    }

    fn draw(&self) -> u64 {
        let part = random::below(1 << 32) as f64 / (1_u64 << 32) as f64;
        ((self.drawn as f64 + part) * self.step) as u64
    }

    /// The next place below `end`.
    fn take_below(&mut self, end: u64) -> Option<u64> {
        let place = self.next;
        if place >= end {
            return None;
        }
        // Stretches that are no whole numbers may share a place.
        while self.next <= place {
            self.drawn += 1;
            self.next = self.draw();
        }
        Some(place)
    }
}

/// A node that is gone on with.
#[derive(Debug)]
struct Chosen {
    /// Its range of keys when it was chosen.
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    page: PageId,
    children: usize,
}

/// A leaf's range of keys.
#[derive(Debug)]
struct Range {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

/// See the module's head; made by [`View::sample`].
#[derive(Debug)]
pub struct Sample {
    view: View,
    tree: Tree,
    scan: Scan,
    /// Parents of leaves.
    parents: Vec<Chosen>,
    next_parent: usize,
    /// Leaves below the parents already gone through.
    passed: u64,
    strata: Strata,
    ready: VecDeque<Range>,
    leaf_pages: f64,
    read: u64,
    _charge: Charge,
}

impl View {
    /// A sample of at most about `leaves` leaves of a tree.
    ///
    /// ```
    /// # use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let engine = Engine::new(&EngineOptions::default())?;
    /// # let path = folder.path().join("data.gnt");
    /// # let db = engine.create(&path, &CreateOptions::default(), &OpenOptions::default())?;
    /// let mut txn = db.begin(TransactionOptions::default());
    /// let tree = txn.create_tree("numbers")?;
    /// for number in 0..10_000_u32 {
    ///     txn.insert(&tree, &number.to_be_bytes(), b"some value")?;
    /// }
    /// let mut sample = txn.view().sample(&tree, 10)?;
    /// let mut rows = 0.0;
    /// while sample.read_leaf(&mut |_key, _value| rows += 1.0)? {}
    /// let estimate = rows / sample.leaves_read() as f64 * sample.leaf_pages();
    /// assert!(estimate > 5_000.0 && estimate < 20_000.0);
    /// # drop(sample);
    /// # txn.rollback()?;
    /// # db.close()?;
    /// # Ok::<(), gannet_store::Error>(())
    /// ```
    pub fn sample(&self, tree: &Tree, leaves: usize) -> Result<Sample> {
        Sample::new(self.clone(), tree.clone(), leaves)
    }
}

impl Sample {
    fn new(view: View, tree: Tree, leaves: usize) -> Result<Self> {
        let mut scan = view.scan(&tree, (Bound::Unbounded, Bound::Unbounded))?;
        scan.look_ahead(false);
        let shared = view.shared();
        let mut charge = shared.core.budget.charge(Purpose::Work, 0)?;
        let (mut parents, mut scale) = (Vec::new(), 1.0);
        if shared.check_tree(view.reader(true), &tree.root)? == Contents::Stored {
            (parents, scale) = gather(&BTree::new(&shared.core, &tree.root), &mut charge)?;
        }
        let total: u64 = parents.iter().map(|parent| parent.children as u64).sum();
        let mut ready = VecDeque::new();
        if parents.is_empty() {
            ready.push_back(Range { lower: Vec::new(), upper: None });
        }
        Ok(Sample {
            strata: Strata::new(total, leaves),
            leaf_pages: (total as f64 * scale).max(1.0),
            view,
            tree,
            scan,
            parents,
            next_parent: 0,
            passed: 0,
            ready,
            read: 0,
            _charge: charge,
        })
    }

    /// About how many leaves the tree has; exact where it has few.
    pub fn leaf_pages(&self) -> f64 {
        self.leaf_pages
    }

    /// Leaves read so far.
    pub fn leaves_read(&self) -> u64 {
        self.read
    }

    /// Reads the next leaf, in the order of keys, and gives its keys with their values to `each`; false when there is none.
    pub fn read_leaf(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        while self.ready.is_empty() {
            if !self.choose()? {
                return Ok(false);
            }
        }
        let Some(range) = self.ready.pop_front() else { return Ok(false) };
        let upper = range.upper.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan.go_through((Bound::Included(&range.lower), upper));
        while let Some((key, value)) = self.scan.next()? {
            each(key, value);
        }
        self.read += 1;
        Ok(true)
    }

    /// Chooses leaves below the next parent and starts reading them; false when there is no parent left.
    fn choose(&mut self) -> Result<bool> {
        let Some(parent) = self.parents.get(self.next_parent) else { return Ok(false) };
        self.next_parent += 1;
        let core = &self.view.shared().core;
        let leaves = leaves_below(&BTree::new(core, &self.tree.root), parent)?;
        let end = self.passed + parent.children as u64;
        let mut pages = Vec::new();
        while let Some(place) = self.strata.take_below(end) {
            // There may be more leaves now, or fewer, than when they were counted: each stands for as many of those.
            let slot = (place - self.passed) as usize;
            let at = |slot: usize| slot * leaves.len() / parent.children;
            let (first, behind) = (at(slot), at(slot + 1));
            let upper = leaves.get(behind).map(|(key, _)| key).or(parent.upper.as_ref()).cloned();
            if let Some((lower, _)) = leaves.get(first).filter(|_| first < behind) {
                pages.extend(leaves[first..behind].iter().map(|(_, page)| *page));
                self.ready.push_back(Range { lower: lower.clone(), upper });
            }
        }
        self.passed = end;
        pages.truncate(widest_window(&core.pool));
        core.pool.prefetch(&core.volume, &pages, Class::Maintenance, self.scan.ring_access());
        Ok(true)
    }
}

/// The leaves in the range of keys that a parent had when it was chosen, with the keys they begin at.
fn leaves_below(btree: &BTree<'_>, parent: &Chosen) -> Result<Vec<(Vec<u8>, PageId)>> {
    let mut leaves = Vec::with_capacity(parent.children);
    let mut from = parent.lower.clone();
    loop {
        let page = btree.inner_shared(&from, 1)?;
        let node = NodeRef::new(&page);
        if node.level() == 0 {
            // The tree has shrunk to a leaf.
            leaves.push((from, page.id()));
            return Ok(leaves);
        }
        for slot in node.child_for(&from).0..node.count() {
            let key = key_of(node, slot).max(from.clone());
            if parent.upper.as_ref().is_some_and(|upper| *upper <= key) {
                return Ok(leaves);
            }
            leaves.push((key, node.child(slot)));
        }
        match node.upper_fence() {
            Some(upper) => from = upper.to_vec(),
            None => return Ok(leaves),
        }
    }
}

fn key_of(node: NodeRef<'_>, slot: usize) -> Vec<u8> {
    let mut key = Vec::new();
    node.copy_key(slot, &mut key);
    key
}

/// Parents of leaves, and how many of them each stands for.
fn gather(btree: &BTree<'_>, charge: &mut Charge) -> Result<(Vec<Chosen>, f64)> {
    let root = Chosen { lower: Vec::new(), upper: None, page: btree.tree.root(), children: 0 };
    let mut level = btree.inner_shared(&[], u8::MAX).map(|page| NodeRef::new(&page).level())?;
    if level == 0 {
        return Ok((Vec::new(), 1.0));
    }
    let mut nodes = vec![root];
    count_children(btree, &mut nodes, level)?;
    let mut scale = 1.0;
    while level > 1 {
        let total: u64 = nodes.iter().map(|node| node.children as u64).sum();
        let mut strata = Strata::new(total, NODES);
        let (mut below, mut passed, mut bytes) = (Vec::new(), 0, 0);
        for node in &nodes {
            let end = passed + node.children as u64;
            let page = btree.inner_shared(&node.lower, level)?;
            let parent = NodeRef::new(&page);
            while let Some(place) = strata.take_below(end) {
                let slot = (place - passed) as usize;
                if parent.level() == level && slot < parent.count() {
                    let lower = key_of(parent, slot);
                    let upper = if slot + 1 < parent.count() {
                        Some(key_of(parent, slot + 1))
                    } else {
                        parent.upper_fence().map(<[u8]>::to_vec)
                    };
                    let keys = lower.capacity() + upper.as_ref().map_or(0, Vec::capacity);
                    bytes += (size_of::<Chosen>() + keys) as u64;
                    below.push(Chosen { lower, upper, page: parent.child(slot), children: 0 });
                }
            }
            passed = end;
        }
        charge.resize(bytes)?;
        scale *= total as f64 / below.len().max(1) as f64;
        nodes = below;
        level -= 1;
        count_children(btree, &mut nodes, level)?;
    }
    Ok((nodes, scale))
}

fn count_children(btree: &BTree<'_>, nodes: &mut [Chosen], level: u8) -> Result<()> {
    let core = btree.core;
    for batch in nodes.chunks_mut(FETCH_AT_ONCE) {
        let pages: Vec<PageId> = batch.iter().map(|node| node.page).collect();
        core.pool.prefetch(&core.volume, &pages, Class::Maintenance, Access::Normal);
        for chosen in batch {
            let page = btree.inner_shared(&chosen.lower, level)?;
            let node = NodeRef::new(&page);
            chosen.children = if node.level() == level { node.count() } else { 0 };
        }
    }
    Ok(())
}
