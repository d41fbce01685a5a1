//! Nodes made of arbitrary bytes.
#![expect(unsafe_code, reason = "vouches for the buffer that it hands to the optimistic reader")]

use super::{PAGE, payload};
use crate::entry::{self, Entry};
use crate::node::{
    NodeMut, NodeOp, NodeRef, RacyNode, SplitPoint, max_inline_payload, max_key_len, verify_structure,
};
use crate::page::{self, PageKind};
use gannet_base::{TreeId, TxnId};
use std::collections::BTreeSet;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A page that may be a node.
pub(super) fn any(page: &[u8]) {
    if page::kind(page) != Some(PageKind::Node) {
        return;
    }
    let words: Vec<u64> = page.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    // SAFETY: the words are aligned, borrowed during the node's life, and nobody changes them.
    let racy = unsafe { RacyNode::new(words.as_ptr().cast(), words.len() * 8) };
    for key in [&[][..], &[0xFF; 9], &page[PAGE - 8..], &page[PAGE - 600..]] {
        let _ = (racy.covers(key), racy.child_for(key), racy.level(), racy.count());
    }
    if verify_structure(page, PAGE).is_err() {
        return;
    }
    let node = NodeRef::new(page);
    let entries = entries(node);
    assert!(entries.len() == node.count() && entries.is_sorted_by(|a, b| a.0 < b.0));
    found(node, racy, &entries);
    image(node, &entries);
    if let Some(point) = node.choose_split() {
        split(page, &point, &entries);
    }
    if node.level() == 0 {
        entries.iter().for_each(|(_, bytes)| payload(bytes));
        settle(page, &entries);
        for key in [longer(&entries), vec![0xFF; max_key_len(PAGE)], node.lower_fence().to_vec()] {
            insert(page, &key, &entries);
        }
    }
}

fn entries(node: NodeRef<'_>) -> Entries {
    let entry = |slot| {
        let mut key = Vec::new();
        node.copy_key(slot, &mut key);
        (key, node.payload(slot).to_vec())
    };
    (0..node.count()).map(entry).collect()
}

/// Every entry is found by its key, with a latch and without.
fn found(node: NodeRef<'_>, racy: RacyNode<'_>, entries: &Entries) {
    for (slot, (key, _)) in entries.iter().enumerate() {
        assert!(node.covers(key) && racy.covers(key));
        assert_eq!(node.search(key), Ok(slot));
        if node.is_inner() {
            assert_eq!(node.child_for(key), (slot, node.child(slot)));
            assert_eq!(racy.child_for(key), Some((slot, node.child(slot))));
        }
    }
}

/// The image has the same entries, and fits the log.
fn image(node: NodeRef<'_>, entries: &Entries) {
    let mut image = Vec::new();
    node.image(&mut image);
    let mut again = vec![0xAA; PAGE];
    let node = NodeMut::from_image(&mut again, &image).expect("the image of a sound node");
    assert_eq!(&self::entries(node.view()), entries);
    let mut bytes = Vec::new();
    let op = NodeOp::Image { image: &image };
    op.encode(&mut bytes);
    assert_eq!(NodeOp::decode(&bytes), Ok(op));
}

/// Both halves are sound and have all entries between them; merged, they are the node again.
fn split(page: &[u8], point: &SplitPoint, entries: &Entries) -> (Vec<u8>, Vec<u8>) {
    let (mut left, mut right) = (page.to_vec(), vec![0; PAGE]);
    let separator = &point.separator;
    NodeRef::new(page).split_right_into(point.slot, separator, &mut right).expect("a split that was chosen");
    NodeMut::new(&mut left).truncate_right(point.slot, separator).expect("a split that was chosen");
    let mut rest = page.to_vec();
    NodeMut::new(&mut rest).truncate_left(point.slot, separator).expect("a split that was chosen");
    assert_eq!(self::entries(NodeRef::new(&rest)), self::entries(NodeRef::new(&right)));
    for half in [&left, &right, &rest] {
        verify_structure(half, PAGE).expect("half of a sound node");
    }
    let both = [self::entries(NodeRef::new(&left)), self::entries(NodeRef::new(&right))].concat();
    assert_eq!(&both, entries);
    let mut merged = left.clone();
    if NodeRef::new(&left).can_merge(NodeRef::new(&right)) {
        NodeMut::new(&mut merged).merge_from_right(NodeRef::new(&right)).expect("it can");
        verify_structure(&merged, PAGE).expect("two sound neighbours");
        assert_eq!(&self::entries(NodeRef::new(&merged)), entries);
    }
    (left, right)
}

/// A key right behind the last one.
fn longer(entries: &Entries) -> Vec<u8> {
    let mut key = entries.last().map(|(key, _)| key.clone()).unwrap_or_default();
    key.push(0);
    key
}

/// The longest entry fits, after one split at most.
fn insert(page: &[u8], key: &[u8], entries: &Entries) {
    let node = NodeRef::new(page);
    if key.len() > max_key_len(PAGE) || !node.covers(key) {
        return;
    }
    let Err(slot) = node.search(key) else { return };
    let payload = vec![0; max_inline_payload(PAGE, key.len())];
    if node.fits(node.strip(key).len(), payload.len()) {
        let mut copy = page.to_vec();
        assert!(NodeMut::new(&mut copy).insert(slot, key, &payload));
        return verify_structure(&copy, PAGE).expect("a sound node with one more entry");
    }
    let point = node.choose_split_for_insert(slot, key, payload.len()).expect("one split is enough");
    let (mut left, mut right) = split(page, &point, entries);
    let (half, slot) =
        if point.pending_goes_right { (&mut right, slot - point.slot) } else { (&mut left, slot) };
    assert_eq!(NodeRef::new(half).search(key), Err(slot));
    assert!(NodeMut::new(half).insert(slot, key, &payload), "one split is enough");
    verify_structure(half, PAGE).expect("a sound node with one more entry");
}

/// What is settled is gone from the headers, and nothing else has changed.
fn settle(page: &[u8], entries: &Entries) {
    let writers: BTreeSet<TxnId> =
        entries.iter().filter_map(|(_, bytes)| Entry::decode(bytes)).map(|entry| entry.writer).collect();
    for horizon in writers.into_iter().take(4).map(|writer| TxnId(writer.0.saturating_add(1))) {
        let mut settled = page.to_vec();
        entry::settle(&mut settled, horizon).expect("entries only get shorter");
        verify_structure(&settled, PAGE).expect("a sound node that was settled");
        let node = NodeRef::new(&settled);
        assert!(!entry::can_settle(node, horizon));
        assert!(node.tree() == TreeId(page::tree(page).0) && node.count() <= entries.len());
    }
}
