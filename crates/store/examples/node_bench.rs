//! What the node page's operations cost on one core with the page in cache.
//!
//! `cargo run --release -p gannet-store --example node_bench`
#![expect(unsafe_code, reason = "the optimistic reader is measured on a buffer of our own")]

use gannet_base::{TreeId, checksum, clock};
use gannet_store::node::{NodeMut, NodeOp, NodeRef, RacyNode, verify_structure};
use std::hint::black_box;

const PAGE: usize = 8192;
const ENTRIES: usize = 100;
const PAYLOAD: usize = 48;

/// A name and how it makes the n-th key.
type Shape = (&'static str, fn(u64) -> [u8; 16]);

/// Counting keys without fences, as in a tree's root: no prefix is cut off, all keys share 15 bytes.
const UNBOUNDED: &str = "no fences";

const SHAPES: [Shape; 3] =
    [("random keys", random_key), ("counting keys", counting_key), (UNBOUNDED, counting_key)];

fn scatter(n: u64) -> u64 {
    checksum::page(1, gannet_base::PageId(n), b"")
}

fn random_key(n: u64) -> [u8; 16] {
    (u128::from(scatter(n)) << 64 | u128::from(n)).to_be_bytes()
}

/// Two integers, the second counting; the fences share everything but the last bytes.
fn counting_key(n: u64) -> [u8; 16] {
    (7u128 << 64 | u128::from(n)).to_be_bytes()
}

/// Times rounds of `batch` calls; gives nanoseconds a call in the best of thirty rounds.
fn time(batch: usize, mut body: impl FnMut(usize)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = clock::now();
        for i in 0..batch {
            body(i);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / batch as f64);
    }
    best
}

/// An aligned node with `keys`.
fn build(level: u8, upper: Option<&[u8]>, keys: &[[u8; 16]]) -> Vec<u64> {
    let mut words = vec![0u64; PAGE / 8];
    let mut page = vec![0; PAGE];
    let lower: &[u8] = if upper.is_some() { &keys[0] } else { b"" };
    let mut node = NodeMut::init(&mut page, TreeId(9), level, lower, upper);
    for (i, key) in keys.iter().enumerate() {
        let payload = if level > 0 { &[5; 8][..] } else { &[5; PAYLOAD] };
        let key = if level > 0 && i == 0 { lower } else { key };
        assert!(node.insert(i, key, payload));
    }
    verify_structure(&page, PAGE).expect("a sound node");
    for (word, bytes) in words.iter_mut().zip(page.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: the words' bytes, borrowed as long as they are.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() * 8) }
}

fn measure(shape: Shape) {
    let (name, make) = shape;
    let mut keys: Vec<_> = (0..ENTRIES as u64).map(make).collect();
    keys.sort_unstable();
    let mut upper = keys[ENTRIES - 1];
    upper[15] = upper[15].wrapping_add(1).max(1);
    let upper = (name != UNBOUNDED).then_some(&upper[..]);
    let order: Vec<usize> = (0..1 << 14).map(|i| (scatter(i) % ENTRIES as u64) as usize).collect();

    let leaf = build(0, upper, &keys);
    let node = NodeRef::new(bytes(&leaf));
    let found = time(order.len(), |i| {
        black_box(node.search(black_box(&keys[order[i]])).is_ok());
    });
    let inner = build(1, upper, &keys);
    let node = NodeRef::new(bytes(&inner));
    let child = time(order.len(), |i| {
        black_box(node.child_for(black_box(&keys[order[i]])));
    });
    // SAFETY: aligned, borrowed, not changed.
    let racy = unsafe { RacyNode::new(inner.as_ptr().cast(), PAGE) };
    let optimistic = time(order.len(), |i| {
        let key = black_box(&keys[order[i]]);
        black_box((racy.covers(key), racy.child_for(key)));
    });
    println!(
        "{name:14} search {found:6.1} ns   child {child:6.1} ns   optimistic fences + child {optimistic:6.1} ns"
    );

    let random_order = {
        let mut shuffled: Vec<_> = (0..ENTRIES as u64).map(|n| (scatter(n + 1000), n as usize)).collect();
        shuffled.sort_unstable();
        shuffled
    };
    let lower: &[u8] = if upper.is_some() { &keys[0] } else { b"" };
    let mut template = vec![0; PAGE];
    NodeMut::init(&mut template, TreeId(9), 0, lower, upper);
    let mut page = template.clone();
    let insert = time(200, |_| {
        page.copy_from_slice(&template);
        for &(_, n) in &random_order {
            let node = NodeRef::new(&page);
            let Err(slot) = node.search(&keys[n]) else { unreachable!("not there yet") };
            let suffix = node.suffix_to_store(slot, &keys[n]);
            NodeOp::Insert { slot, suffix, payload: &[5; PAYLOAD] }.apply(&mut page).expect("it fits");
        }
    }) / ENTRIES as f64;
    let replace = time(order.len(), |i| {
        NodeOp::Replace { slot: order[i], payload: &[6; PAYLOAD] }.apply(&mut page).expect("it fits");
    });
    let scan = time(1000, |_| {
        let node = NodeRef::new(&page);
        black_box(node.entries(0..node.count()).map(|e| e.suffix.len() + e.payload.len()).sum::<usize>());
    }) / ENTRIES as f64;
    println!(
        "{:14} search + insert {insert:6.1} ns   replace {replace:6.1} ns   scan {scan:4.1} ns an entry",
        ""
    );
    structure(&page);
}

/// Whole-page work.
fn structure(page: &[u8]) {
    let node = NodeRef::new(page);
    let verify = time(1000, |_| verify_structure(black_box(page), PAGE).expect("sound"));
    let mut image = Vec::new();
    let imaged = time(1000, |_| {
        image.clear();
        node.image(&mut image);
    });
    let choose = time(1000, |_| {
        black_box(node.choose_split());
    });
    let point = node.choose_split().expect("many entries");
    let (mut left, mut right) = (page.to_vec(), vec![0; PAGE]);
    let split = time(1000, |_| {
        left.copy_from_slice(page);
        node.split_right_into(point.slot, &point.separator, &mut right).expect("a right half");
        NodeMut::new(&mut left).truncate_right(point.slot, &point.separator).expect("a left half");
    });
    println!(
        "{:14} verify {verify:6.0} ns   image {imaged:6.0} ns   choose split {choose:6.0} ns   split {split:6.0} ns",
        ""
    );
}

fn main() {
    println!("{ENTRIES} entries of 16 + {PAYLOAD} bytes on a page of {PAGE}");
    for shape in SHAPES {
        measure(shape);
    }
}
