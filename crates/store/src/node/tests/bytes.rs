//! Arbitrary and damaged bytes.

use super::*;

/// A leaf or inner node with history: holes, several key lengths, fences.
fn seasoned(level: u8, prefix: &[u8], n: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    let fence = |byte: u8| [prefix, &[byte]].concat();
    let mut node = NodeMut::init(&mut page, TREE, level, &fence(b'b'), Some(&fence(b'y')));
    if level > 0 {
        assert!(node.insert(0, &fence(b'b'), &[3; 8]));
    }
    for i in 1..n {
        let key = [&fence(b'c')[..], &(i * 7919 % n).to_be_bytes(), &vec![b'k'; i as usize % 5]].concat();
        let payload = if level > 0 { vec![i as u8 | 1; 8] } else { vec![i as u8; i as usize % 40] };
        let Err(slot) = node.view().search(&key) else { continue };
        if !node.insert(slot, &key, &payload) {
            break;
        }
        if i % 5 == 0 {
            node.remove(1);
        }
    }
    page
}

/// Everything a reader does on a page that passed the check, and every operation.
fn exercise(page: &[u8], key: &[u8], op_bytes: &[u8]) {
    let node = NodeRef::new(page);
    for entry in node.entries(0..node.count()).rev() {
        assert!(entry.payload.len() < page.len());
    }
    if node.covers(key) {
        let found = node.search(key);
        if let Ok(slot) = found {
            let mut copy = Vec::new();
            node.copy_key(slot, &mut copy);
            assert_eq!(copy, key);
        }
        if node.is_inner() && node.count() > 0 {
            node.child_for(key);
        }
    }
    let _ = node.choose_split();
    let _ = laid_out_anew(page);
    if let Ok(op) = NodeOp::decode(op_bytes) {
        let mut copy = page.to_vec();
        if op.apply(&mut copy).is_ok() {
            verify_structure(&copy, copy.len()).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 2000 }))]

    #[test]
    fn arbitrary_bytes_are_judged_without_a_panic(
        mut page in prop::collection::vec(any::<u8>(), PAGE..=PAGE),
        header in prop::option::of((0..3u8, 0..2u8, 0..600u16, 0..4200u16, 0..300u16)),
    ) {
        if let Some((level, flags, count, heap_start, lengths)) = header {
            page[20] = page::PageKind::Node as u8;
            page[24] = level;
            page[25] = flags;
            page[26..28].copy_from_slice(&count.to_le_bytes());
            page[28..30].copy_from_slice(&heap_start.to_le_bytes());
            page[32..34].copy_from_slice(&lengths.to_le_bytes());
            page[34..36].copy_from_slice(&(lengths * u16::from(flags)).to_le_bytes());
            page[36..38].fill(0);
            page[40..48].fill(0);
        }
        let _ = verify_structure(&page, PAGE);
    }

    #[test]
    fn damaged_nodes_are_refused_or_readable(
        level in 0..2u8,
        n in 1..90u64,
        flips in prop::collection::vec((16..PAGE, 0..8u32), 1..4),
        in_header in prop::bool::ANY,
        key in keys(),
        op in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let mut page = seasoned(level, b"pre", n);
        for (at, bit) in flips {
            page[if in_header { 16 + at % 200 } else { at }] ^= 1 << bit;
        }
        if verify_structure(&page, PAGE).is_ok() {
            exercise(&page, &key, &op);
            exercise(&page, &[b"prec", &key[..]].concat(), &op);
        }
    }

    #[test]
    fn arbitrary_operations_do_no_harm(
        level in 0..2u8,
        tag in 1..8u8,
        slot in 0..100u16,
        number in 0..20u16,
        rest in prop::collection::vec(any::<u8>(), 0..200),
        key in keys(),
    ) {
        let page = seasoned(level, b"pre", 60);
        let separators = [b"prec\0\0\0\0\0\0\0", &number.to_be_bytes()[..]].concat();
        for tail in [&rest[..], &key, &separators] {
            let op = [&[tag][..], &slot.to_le_bytes(), &number.to_le_bytes(), tail].concat();
            exercise(&page, &key, &op);
            exercise(&page, &key, &[&[tag][..], &slot.to_le_bytes(), tail].concat());
        }
    }

    #[test]
    fn damaged_images_are_refused_or_sound(
        level in 0..2u8,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 0..3),
        len in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut image = Vec::new();
        NodeRef::new(&seasoned(level, b"pre", 60)).image(&mut image);
        for (at, bit) in flips {
            let at = at.index(image.len());
            image[at] ^= 1 << bit;
        }
        if let Some(len) = len {
            image.truncate(len.index(image.len()));
        }
        let mut page = vec![0; PAGE];
        if NodeMut::from_image(&mut page, &image).is_ok() {
            verify_structure(&page, PAGE).unwrap();
        }
    }
}

#[test]
fn every_kind_of_damage_is_named() {
    let page = seasoned(0, b"pre", 60);
    verify_structure(&page, PAGE).unwrap();
    let damage = |at: usize, by: u8| {
        let mut copy = page.clone();
        copy[at] = copy[at].wrapping_add(by);
        verify_structure(&copy, PAGE).unwrap_err()
    };
    assert_eq!(damage(20, 1), "not a node");
    assert!(damage(24, 100).starts_with("level 100"));
    assert!(damage(25, 2).contains("flags"));
    assert!(damage(26, 1).starts_with("slot "));
    assert!(damage(30, 1).contains("garbage"));
    assert!(damage(36, 1).contains("prefix"));
    assert!(damage(38, 200).contains("last insertion"));
    assert!(damage(40, 1).contains("head"));
    assert!(damage(44, 1).contains("reserved"));
    assert!(damage(48, 1).starts_with("slot 0"));
    assert!(damage(50, 1).starts_with("slot "));
    assert!(damage(52, 1).contains("head"));
    assert!(damage(PAGE - 1, 30).contains("fences are out of order"));
    assert!(verify_structure(&page, 8192).is_err());
    assert!(verify_structure(&page[1..], PAGE - 1).is_err());
}
