//! Where cells lie, where splits cut, how full pages get.

use super::*;

fn keys_of(page: &[u8]) -> Vec<Vec<u8>> {
    contents(page).2.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn zero_padding_of_heads_does_not_confuse_keys() {
    let mut page = empty(PAGE, 0);
    let mut node = NodeMut::new(&mut page);
    let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0\0\0\0", b"a", b"a\0", b"a\0\0\0", b"a\0\0\0\0", b"a\0\0\x01"];
    for key in keys.iter().rev() {
        assert_eq!(node.view().search(key), Err(0));
        assert!(node.insert(0, key, b"v"));
    }
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(node.view().search(key), Ok(i));
    }
    assert_eq!(node.view().search(b"a\0\0"), Err(5));
}

#[test]
fn the_first_entry_of_an_inner_node_is_its_lower_fence() {
    let mut page = vec![0; PAGE];
    let mut node = NodeMut::init(&mut page, TREE, 2, b"mango", Some(b"melon"));
    assert!(node.insert(0, b"mango", &11u64.to_le_bytes()));
    assert!(node.insert(1, b"map", &12u64.to_le_bytes()));
    let view = node.view();
    assert_eq!(
        (view.prefix(), view.key_suffix(0), view.key_suffix(1)),
        (&b"m"[..], &b"ango"[..], &b"ap"[..])
    );
    assert_eq!(view.search(b"mango"), Ok(0));
    assert_eq!(view.search(b"mango1"), Err(1));
    assert_eq!(view.child_for(b"mango"), (0, PageId(11)));
    assert_eq!(view.child_for(b"manifold"), (0, PageId(11)));
    assert_eq!(view.child_for(b"map"), (1, PageId(12)));
    assert_eq!(view.child_for(b"mars"), (1, PageId(12)));
    assert!(NodeOp::Remove { slot: 0 }.apply(&mut page).is_err());
}

#[test]
fn a_leaf_separator_is_as_short_as_can_be() {
    let mut page = empty(PAGE, 0);
    let mut node = NodeMut::new(&mut page);
    for (i, key) in [&b"apple"[..], b"apricot", b"banana split", b"banana tree"].iter().enumerate() {
        assert!(node.insert(i, key, &[0; 100]));
    }
    let point = node.view().choose_split().unwrap();
    assert_eq!((point.slot, point.separator.as_slice()), (2, &b"b"[..]));
    let mut right = vec![0; PAGE];
    node.view().split_right_into(point.slot, &point.separator, &mut right).unwrap();
    node.truncate_right(point.slot, &point.separator).unwrap();
    assert_eq!(keys_of(&page), [&b"apple"[..], b"apricot"]);
    assert_eq!(keys_of(&right), [&b"banana split"[..], b"banana tree"]);
    assert_eq!(NodeRef::new(&page).upper_fence(), Some(&b"b"[..]));
}

/// Inserts keys and gives how full the leaves are on average.
fn fill(keys: impl Iterator<Item = Vec<u8>>) -> f64 {
    let mut nodes = Level::new(PAGE, 0);
    for key in keys {
        nodes.put(&key, &[1; 40]);
    }
    nodes.check();
    let used: usize = nodes.nodes.iter().map(|[page, _]| NodeRef::new(page).used_bytes()).sum();
    used as f64 / (nodes.nodes.len() * PAGE) as f64
}

#[test]
fn runs_of_insertions_leave_full_pages_behind() {
    // Keys whose prefix does not grow when the page gets its upper fence: else it had been full just before.
    let ascending = |i: u64| [&i.to_be_bytes()[6..], &i.to_be_bytes()].concat();
    let numbers = |i: u64| i.to_be_bytes().to_vec();
    let fills = [
        fill((0..2000).map(ascending)),
        fill((0..2000).rev().map(ascending)),
        fill((0..2000).map(numbers)),
        fill((0..2000).rev().map(numbers)),
    ];
    assert!(fills[0] > 0.95 && fills[1] > 0.95 && fills[2] > 0.87 && fills[3] > 0.87, "{fills:?}");
    // Ten runs in turn, each in the middle of the keys: what follows a run is somebody else's.
    for burst in [1, 3, 12] {
        let turns = |i: u64| [&[(i / burst % 10) as u8][..], &i.to_be_bytes()].concat();
        let filled = fill((0..6000).map(turns));
        assert!(filled > 0.8, "{burst} at a time: {filled}");
    }
    let scattered = |i: u64| gannet_base::checksum::page(1, PageId(i), b"").to_be_bytes().to_vec();
    let filled = fill((0..2000).map(scattered));
    assert!(filled > 0.62 && filled < 0.8, "{filled}");
}

#[test]
fn replaced_and_removed_bytes_are_used_again() {
    let mut page = empty(PAGE, 0);
    let mut node = NodeMut::new(&mut page);
    let mut n = 0u32;
    while node.insert(n as usize, &n.to_be_bytes(), &[7; 50]) {
        n += 1;
    }
    let free = node.view().free_space();
    for i in (0..n as usize).step_by(2) {
        assert!(node.replace(i, &[8; 10]));
    }
    assert_eq!(node.view().free_space(), free + 40 * n.div_ceil(2) as usize);
    assert!(node.replace(1, &[9; 90]), "compaction finds the room");
    assert_eq!(node.view().payload(1), [9; 90]);
    node.payload_mut(1)[3] = 1;
    assert_eq!(node.view().payload(1)[..5], [9, 9, 9, 1, 9]);
    for _ in 0..n {
        node.remove(0);
    }
    assert_eq!(node.view().free_space(), PAGE - 48);
    assert_eq!(node.view().used_bytes(), 48);
}

#[test]
fn a_merge_gives_back_what_a_split_took() {
    for level in [0, 1] {
        let mut page = vec![0; PAGE];
        let mut node = NodeMut::init(&mut page, TREE, level, b"stem", Some(b"steppe"));
        for i in 0..40usize {
            let key = [b"stem", &vec![b'x'; i][..]].concat();
            assert!(node.insert(i, &key, &[i as u8 + 1; 8]));
        }
        let before = contents(&page);
        let point = NodeRef::new(&page).choose_split().unwrap();
        let mut right = vec![0; PAGE];
        NodeRef::new(&page).split_right_into(point.slot, &point.separator, &mut right).unwrap();
        let mut node = NodeMut::new(&mut page);
        node.truncate_right(point.slot, &point.separator).unwrap();
        assert!(node.view().prefix().len() > 3 && node.view().can_merge(NodeRef::new(&right)));
        assert!(!NodeRef::new(&right).can_merge(node.view()), "only a right neighbour merges");
        node.merge_from_right(NodeRef::new(&right)).unwrap();
        assert_eq!(contents(&page), before);
    }
}

#[test]
fn an_image_keeps_the_pages_own_lsn() {
    let source = empty(PAGE, 3);
    let mut image = Vec::new();
    NodeRef::new(&source).image(&mut image);
    let mut page = vec![0; PAGE];
    page::set_lsn(&mut page, gannet_base::Lsn(99));
    NodeOp::Image { image: &image }.apply(&mut page).unwrap();
    assert_eq!(page::lsn(&page), gannet_base::Lsn(99));
    assert_eq!((NodeRef::new(&page).tree(), NodeRef::new(&page).level()), (TREE, 3));
}

#[test]
fn limits_leave_room_for_four_of_the_longest_keys() {
    for page_size in page::PAGE_SIZES {
        let key = max_key_len(page_size);
        assert!(4 * (10 + key + 60) + 2 * key + 48 <= page_size);
        assert!(max_inline_payload(page_size, key) > 470);
        // The inequalities of `limits.rs`.
        let usable = page_size - 48;
        assert!(2 * (10 + max_entry_len(page_size)) + 4 * key <= usable);
        assert!(7 * key + 54 <= usable);
    }
}
