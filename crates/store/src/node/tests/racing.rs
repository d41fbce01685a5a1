//! Optimistic reading.
#![expect(unsafe_code, reason = "the tests vouch for the buffers they hand to the optimistic reader")]

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// An aligned page.
fn aligned(page: &[u8]) -> Vec<u64> {
    page.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

fn racy(words: &[u64]) -> RacyNode<'_> {
    // SAFETY: the words are aligned, borrowed during the node's life, and nobody changes them.
    unsafe { RacyNode::new(words.as_ptr().cast(), words.len() * 8) }
}

fn inner(keys: &[Vec<u8>], upper: Option<&[u8]>) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let mut node = NodeMut::init(&mut page, TREE, 1, b"stem", upper);
    assert!(node.insert(0, b"stem", &1u64.to_le_bytes()));
    for key in keys {
        if node.view().covers(key)
            && let Err(slot) = node.view().search(key)
        {
            node.insert(slot, key, &(key.len() as u64 + 5).to_le_bytes());
        }
    }
    page
}

proptest! {
    #[test]
    fn an_undisturbed_optimistic_reader_sees_the_same(
        stored in prop::collection::vec(keys(), 0..40),
        wanted in prop::collection::vec(keys(), 1..40),
        bounded in prop::bool::ANY,
    ) {
        let page = inner(&stored, bounded.then_some(b"stemmas"));
        let words = aligned(&page);
        let (plain, racy) = (NodeRef::new(&page), racy(&words));
        prop_assert_eq!((racy.level(), racy.count()), (plain.level(), plain.count()));
        for key in stored.iter().chain(&wanted) {
            prop_assert_eq!(racy.covers(key), plain.covers(key));
            if plain.covers(key) {
                prop_assert_eq!(racy.child_for(key), Some(plain.child_for(key)));
            }
        }
    }

    #[test]
    fn an_optimistic_reader_survives_anything(
        words in prop::collection::vec(any::<u64>(), 0..600),
        key in keys(),
        header in prop::option::of((any::<u16>(), 0..9u64)),
    ) {
        let mut words = words;
        if let (Some((count, prefix)), true) = (header, words.len() > 6) {
            words[3] = u64::from(count) << 16 | 1;
            words[4] = prefix << 32;
            words[5] = prefix;
        }
        let node = racy(&words);
        let _ = (node.level(), node.count(), node.covers(&key), node.child_for(&key));
    }
}

#[test]
fn validated_reads_are_never_wrong_while_a_writer_publishes() {
    let few: Vec<_> = (0..10u8).map(|i| vec![b't', i]).collect();
    let many: Vec<_> = (0..100u8).map(|i| vec![b't', i, 1]).collect();
    let pages = [inner(&few, None), inner(&many, None)];
    let wanted = [b't', 5, 1];
    let expected = pages.each_ref().map(|page| NodeRef::new(page).child_for(&wanted));
    let shared = Arc::new((AtomicU64::new(0), (0..PAGE / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>()));
    let stop = Arc::new(AtomicBool::new(false));
    let publish = |shared: &(AtomicU64, Vec<AtomicU64>), page: &[u8]| {
        let version = shared.0.load(Ordering::Relaxed);
        shared.0.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        // SAFETY: the words are aligned and live; this thread alone stores, others load words atomically.
        unsafe { RacyNode::publish(shared.1.as_ptr().cast_mut().cast(), page) };
        shared.0.store(version + 2, Ordering::Release);
    };
    publish(&shared, &pages[0]);
    let reader = {
        let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
        gannet_base::thread::spawn("reader", move || {
            let mut validated = 0u64;
            while !stop.load(Ordering::Relaxed) || validated == 0 {
                let version = shared.0.load(Ordering::Acquire);
                // SAFETY: the words are aligned and live; stores to them are atomic words.
                let node = unsafe { RacyNode::new(shared.1.as_ptr().cast(), PAGE) };
                let found = node.child_for(&wanted);
                fence(Ordering::Acquire);
                if version % 2 == 0 && shared.0.load(Ordering::Relaxed) == version {
                    assert!(expected.contains(&found.unwrap()));
                    validated += 1;
                }
            }
        })
    };
    for i in 1..if cfg!(miri) { 10 } else { 20_000 } {
        publish(&shared, &pages[i % 2]);
    }
    stop.store(true, Ordering::Relaxed);
    reader.join().unwrap();
}
