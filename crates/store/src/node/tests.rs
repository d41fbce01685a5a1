//! Nodes against a `BTreeMap`, with every change applied twice: to a page, and through its encoded operation to a
//! twin that is logically equal but laid out differently, as a page under redo is.

use super::*;
use crate::page;
use gannet_base::{PageId, TreeId};
use proptest::prelude::*;
use std::collections::BTreeMap;

mod bytes;
mod racing;
mod shape;

const TREE: TreeId = TreeId(7);

/// An empty node covering everything.
fn empty(page_size: usize, level: u8) -> Vec<u8> {
    let mut page = vec![0xA5; page_size];
    NodeMut::init(&mut page, TREE, level, b"", None);
    page
}

/// The same node with its heap laid out anew, as after a restart from an image.
fn laid_out_anew(page: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    NodeRef::new(page).image(&mut image);
    let mut copy = vec![0x5A; page.len()];
    NodeMut::from_image(&mut copy, &image).unwrap();
    copy
}

/// Fences and entries.
type Contents = (Vec<u8>, Option<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>);

fn contents(page: &[u8]) -> Contents {
    let node = NodeRef::new(page);
    let entries = (0..node.count()).map(|i| {
        let mut key = Vec::new();
        node.copy_key(i, &mut key);
        (key, node.payload(i).to_vec())
    });
    (node.lower_fence().to_vec(), node.upper_fence().map(<[u8]>::to_vec), entries.collect())
}

/// One level of a tree: neighbouring nodes, each with its twin, and what they should hold.
struct Level {
    page_size: usize,
    level: u8,
    nodes: Vec<[Vec<u8>; 2]>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Level {
    fn new(page_size: usize, level: u8) -> Self {
        let page = empty(page_size, level);
        let mut made = Level { page_size, level, nodes: vec![[page.clone(), page]], model: BTreeMap::new() };
        if level > 0 {
            made.put(b"", &1u64.to_le_bytes());
        }
        made
    }

    fn index_for(&self, key: &[u8]) -> usize {
        let covering: Vec<_> =
            (0..self.nodes.len()).filter(|&i| NodeRef::new(&self.nodes[i][0]).covers(key)).collect();
        assert_eq!(covering.len(), 1, "exactly one node covers a key");
        covering[0]
    }

    /// Applies an operation to a node and, from its bytes, to the twin. Says whether it was applied.
    fn apply(&mut self, index: usize, op: &NodeOp<'_>) -> bool {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        let decoded = NodeOp::decode(&bytes).unwrap();
        assert_eq!(decoded, *op);
        let [page, twin] = &mut self.nodes[index];
        let before = page.clone();
        let first = op.apply(page);
        assert_eq!(first, decoded.apply(twin), "redo decides as the first time");
        if first.is_err() && !matches!(op, NodeOp::Image { .. }) {
            assert!(*page == before, "a refused change leaves the page alone");
        }
        assert_eq!(contents(page), contents(twin));
        assert_eq!(NodeRef::new(page).free_space(), NodeRef::new(twin).free_space());
        first.is_ok()
    }

    fn split(&mut self, index: usize, point: &SplitPoint) {
        let mut right = vec![0; self.page_size];
        let whole = self.nodes[index][0].clone();
        let node = NodeRef::new(&whole);
        node.split_right_into(point.slot, &point.separator, &mut right).unwrap();
        let mut image = Vec::new();
        NodeRef::new(&right).image(&mut image);
        assert!(self.apply(index, &NodeOp::TruncateRight { slot: point.slot, separator: &point.separator }));
        self.nodes.insert(index + 1, [vec![0; self.page_size], vec![1; self.page_size]]);
        let op = NodeOp::Image { image: &image };
        let [page, twin] = &mut self.nodes[index + 1];
        op.apply(page).unwrap();
        op.apply(twin).unwrap();
        assert_eq!(contents(page), contents(&right));
        // What goes to the left from a node leaves the same.
        let mut whole = whole;
        let op = NodeOp::TruncateLeft { slot: point.slot, separator: &point.separator };
        op.apply(&mut whole).unwrap();
        assert_eq!(contents(&whole), contents(&right));
    }

    /// Inserts or replaces, with at most one split.
    fn put(&mut self, key: &[u8], payload: &[u8]) {
        let index = self.index_for(key);
        let node = NodeRef::new(&self.nodes[index][0]);
        let found = node.search(key);
        assert_eq!(found.is_ok(), self.model.contains_key(key));
        let expected_fit = match found {
            Ok(slot) => node.fits_replaced(slot, payload.len()),
            Err(slot) => node.fits(node.suffix_to_store(slot, key).len(), payload.len()),
        };
        assert_eq!(self.try_put(index, key, payload), expected_fit);
        if !expected_fit {
            let node = NodeRef::new(&self.nodes[index][0]);
            let point = match found {
                Ok(slot) => node.choose_split_for_replace(slot, payload.len()),
                Err(slot) => node.choose_split_for_insert(slot, key, payload.len()),
            }
            .expect("within the limits there is always a cut");
            assert_eq!(point.pending_goes_right, key >= point.separator.as_slice());
            self.split(index, &point);
            let index = index + usize::from(point.pending_goes_right);
            assert!(self.try_put(index, key, payload), "after one split everything fits");
            let (Ok(slot) | Err(slot)) = found;
            let moved = slot - if point.pending_goes_right { point.slot } else { 0 };
            assert_eq!(NodeRef::new(&self.nodes[index][0]).search(key), Ok(moved));
        }
        self.model.insert(key.to_vec(), payload.to_vec());
    }

    fn try_put(&mut self, index: usize, key: &[u8], payload: &[u8]) -> bool {
        let page = self.nodes[index][0].clone();
        let node = NodeRef::new(&page);
        match node.search(key) {
            Ok(slot) => self.apply(index, &NodeOp::Replace { slot, payload }),
            Err(slot) => {
                let suffix = node.suffix_to_store(slot, key);
                self.apply(index, &NodeOp::Insert { slot, suffix, payload })
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let index = self.index_for(key);
        let Ok(slot) = NodeRef::new(&self.nodes[index][0]).search(key) else {
            assert!(!self.model.contains_key(key));
            return;
        };
        let count = NodeRef::new(&self.nodes[index][0]).count();
        let may_go = self.level == 0 || slot > 0 || (count == 1 && self.nodes.len() == 1 && !key.is_empty());
        if may_go {
            assert!(self.apply(index, &NodeOp::Remove { slot }));
            self.model.remove(key);
        } else if count > 1 {
            assert!(!self.apply(index, &NodeOp::Remove { slot }));
        }
    }

    fn patch(&mut self, key: &[u8], offset: usize, bytes: &[u8]) {
        let index = self.index_for(key);
        let Ok(slot) = NodeRef::new(&self.nodes[index][0]).search(key) else { return };
        let payload = self.model.get_mut(key).unwrap();
        let fits = self.level == 0 && offset + bytes.len() <= payload.len();
        if fits {
            payload[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        assert_eq!(self.apply(index, &NodeOp::PatchPayload { slot, offset, bytes }), fits);
    }

    fn merge(&mut self, index: usize) {
        if index + 1 >= self.nodes.len() {
            return;
        }
        let right = self.nodes[index + 1][0].clone();
        let (left, right) = (NodeRef::new(&self.nodes[index][0]), NodeRef::new(&right));
        let fits = left.can_merge(right);
        let size = left.merged_size(right);
        let mut image = Vec::new();
        right.image(&mut image);
        assert_eq!(self.apply(index, &NodeOp::MergeFromRight { right: &image }), fits);
        if fits {
            self.nodes.remove(index + 1);
            assert_eq!(NodeRef::new(&self.nodes[index][0]).used_bytes(), size);
        }
    }

    fn check(&self) {
        let mut all = Vec::new();
        let mut fence = Some(Vec::new());
        for [page, twin] in &self.nodes {
            for page in [page, twin] {
                verify_structure(page, self.page_size).unwrap();
            }
            let (lower, upper, entries) = contents(page);
            assert_eq!(fence, Some(lower));
            fence = upper;
            all.extend(entries);
        }
        assert_eq!(fence, None);
        assert!(all.into_iter().eq(self.model.clone()));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, usize),
    /// Puts to keys that count up from a start.
    Run(u16, u8),
    Remove(Vec<u8>),
    Patch(Vec<u8>, usize, Vec<u8>),
    Merge(usize),
    /// Splits a node with nothing pending.
    Split(usize),
    /// Lays a twin's heap out anew.
    Relayout(usize),
}

const PAGE: usize = 4096;

/// Keys that collide in prefixes and heads, end in zeros, and reach the limit.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let stem =
        prop::sample::select(vec![&b""[..], b"a", b"stem", b"stem\0", b"stemma", b"\xff\xff\xff\xff\xff"]);
    let tail = prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..6);
    let longest = max_key_len(PAGE);
    let padding = prop_oneof![6 => Just(0), 1 => 0..longest, 2 => Just(longest)];
    (stem, tail, padding, prop::bool::ANY).prop_map(move |(stem, tail, padding, at_end)| {
        let filler = |len: usize| vec![b'p'; padding.saturating_sub(len)];
        let len = stem.len() + tail.len();
        if at_end { [stem, &tail, &filler(len)].concat() } else { [stem, &filler(len), &tail].concat() }
    })
}

fn payload_lens() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..40usize, 2 => 0..1000usize, 3 => Just(usize::MAX)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (keys(), payload_lens()).prop_map(|(key, len)| Step::Put(key, len)),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(start, n)| Step::Run(start, n)),
        4 => keys().prop_map(Step::Remove),
        2 => (keys(), 0..50usize, prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(key, at, bytes)| Step::Patch(key, at, bytes)),
        3 => (0..20usize).prop_map(Step::Merge),
        1 => (0..20usize).prop_map(Step::Split),
        2 => (0..20usize).prop_map(Step::Relayout),
    ];
    prop::collection::vec(step, 1..120)
}

fn run(level: u8, steps: Vec<Step>) {
    let mut nodes = Level::new(PAGE, level);
    for (n, step) in steps.into_iter().enumerate() {
        let payload = |key_len: usize, len: usize| {
            if level > 0 {
                return (n as u64 + 2).to_le_bytes().to_vec();
            }
            vec![n as u8; len.min(max_inline_payload(PAGE, key_len))]
        };
        match step {
            Step::Put(key, len) => nodes.put(&key, &payload(key.len(), len)),
            Step::Run(start, n) => {
                for key in start..start.saturating_add(u16::from(n)) {
                    nodes.put(&[b"run", &key.to_be_bytes()[..]].concat(), &payload(5, 30));
                }
            }
            Step::Remove(key) => nodes.remove(&key),
            Step::Patch(key, at, bytes) => nodes.patch(&key, at, &bytes),
            Step::Merge(index) => nodes.merge(index % nodes.nodes.len()),
            Step::Split(index) => {
                let index = index % nodes.nodes.len();
                if let Some(point) = NodeRef::new(&nodes.nodes[index][0]).choose_split() {
                    nodes.split(index, &point);
                } else {
                    assert!(NodeRef::new(&nodes.nodes[index][0]).count() < 2);
                }
            }
            Step::Relayout(index) => {
                let index = index % nodes.nodes.len();
                let twin = &mut nodes.nodes[index][1];
                *twin = laid_out_anew(twin);
            }
        }
    }
    nodes.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn leaves_are_a_map_and_redo_agrees(steps in steps()) {
        run(0, steps);
    }

    #[test]
    fn inner_nodes_are_a_map_and_redo_agrees(steps in steps()) {
        run(1, steps);
    }

    /// Only lengths at the limits, in any order: the case the limits were made for.
    #[test]
    fn the_longest_entries_fit_after_one_split(
        seeds in prop::collection::vec((any::<u64>(), 0..4u8, 0..3u8), 1..80),
        size in 0..4usize,
        level in 0..2u8,
    ) {
        let page_size = page::PAGE_SIZES[size];
        let mut nodes = Level::new(page_size, level);
        for (seed, key_kind, payload_kind) in seeds {
            let longest = max_key_len(page_size);
            let key_len = [8, longest - 1, longest, longest][usize::from(key_kind)];
            let mut key = vec![seed as u8 & 1; key_len];
            let at = if seed & 2 == 0 { 0 } else { key_len - 8 };
            key[at..at + 8].copy_from_slice(&seed.to_be_bytes());
            let most = max_inline_payload(page_size, key_len);
            let payload = vec![key_kind; [0, most, most][usize::from(payload_kind)]];
            nodes.put(&key, if level > 0 { &[9; 8] } else { &payload });
        }
        nodes.check();
    }
}
