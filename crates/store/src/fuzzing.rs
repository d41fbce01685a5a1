//! What arbitrary bytes must not do: the entry points of the fuzz targets in `fuzz/`, and of the test that runs the kept corpus
//! through them. Each takes any bytes at all and panics where a guarantee is broken.
//!
//! # What is claimed of any bytes
//! 1. Nothing panics, hangs, or allocates more than a small multiple of what it is given.
//! 2. A node that [`verify_structure`] passes can be read, searched, split, merged, settled and put into an image, and what comes
//!    out is sound and has the same entries. A change of a sound page leaves a sound page, or an error.
//! 3. What is decoded means the same when it is encoded and decoded again.
//!
//! Checksums are made to fit first: bytes that do not verify get no further, so nothing behind them would be tried.

mod node;
#[cfg(test)]
mod tests;

use crate::change;
use crate::entry::{Entry, REFERENCE_LEN, decode_reference, encode_reference};
use crate::log::fuzzing as log;
use crate::node::verify_structure;
use crate::page::{self, PageKind, get_u64, put_u64};
use crate::space::{self, Extent};
use crate::undo::{self, Segment, UndoRecord};
use crate::{catalog, meta, overflow, page_list, ring};
use gannet_base::{PageId, checksum};
use gannet_io::sim::SimDisk;
use gannet_io::{Class, Disk, Durability, File, OpenOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Size of every page here: the smallest, so that short inputs reach far.
const PAGE: usize = page::PAGE_SIZES[0];
/// Number of the page that is tried.
const ID: PageId = PageId(7);
/// Of the database that files are of.
const SALT: u64 = 5;

/// A page, whatever it holds: `data` from its start, the rest zero.
pub fn page(data: &[u8]) {
    let mut page = vec![0; PAGE];
    let len = data.len().min(PAGE);
    page[..len].copy_from_slice(&data[..len]);
    page::seal(&mut page, ID, SALT);
    assert_eq!(page::verify(&page, ID, SALT), page::Verdict::Valid);
    // Whoever reads a page of one kind may be led to one of another kind.
    space_map(&page);
    undo_page(&page);
    overflow_index(&page);
    node::any(&page);
}

fn space_map(page: &[u8]) {
    for (index, extent) in space::read_map(page).enumerate() {
        let mut again = vec![0; PAGE];
        let at = PAGE - (space::extents_per_group(PAGE) as usize - index) * extent.encode().len();
        again[at..at + extent.encode().len()].copy_from_slice(&extent.encode());
        assert_eq!(Extent::decode(&again, index as u64), extent);
    }
}

fn undo_page(page: &[u8]) {
    let Ok(records) = undo::records(page, ID) else { return };
    let mut bytes = Vec::new();
    for (at, record) in records {
        assert!(at.page() == ID && at.offset() + record.len() <= PAGE);
        bytes.clear();
        record.encode(&mut bytes);
        assert_eq!(UndoRecord::decode(&bytes).as_ref(), Some(&record));
        assert_eq!(bytes.len(), record.len());
        let segment = Segment { stream: 3, sequence: 4, first: ID, highest_txn: record.writer };
        assert_eq!(Segment::decode(&segment.key(), &segment.value()), Some(segment));
    }
}

fn overflow_index(page: &[u8]) {
    if let Some((_, listed)) = overflow::decode_index(page) {
        assert!(page::kind(page) == Some(PageKind::OverflowIndex) && listed.len() * 8 < PAGE);
    }
}

/// A payload of a leaf, as each tree reads its own.
fn payload(bytes: &[u8]) {
    if let Some(entry) = Entry::decode(bytes) {
        let mut again = Vec::new();
        entry.encode(&mut again);
        assert_eq!(again, bytes);
        assert_eq!(entry.encoded_len(), bytes.len());
        if entry.is_overflow() {
            let (len, first) = decode_reference(entry.value);
            assert_eq!(encode_reference(len, first), entry.value[..REFERENCE_LEN]);
        }
    }
    if let Some((tree, root)) = catalog::decode(bytes) {
        assert_eq!(catalog::decode(&catalog::encode(tree, root)), Some((tree, root)));
    }
}

/// Changes of a page, as redo applies them, each to what the one before has left: `kind u8 | length u16 | bytes`, one after the
/// other, to a page of zeros. A kind with its highest bit set clears the page first.
pub fn change(data: &[u8]) {
    let mut page = vec![0; PAGE];
    let mut rest = data;
    while let [kind, low, high, behind @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
        let (bytes, behind) = behind.split_at(len);
        if kind & 0x80 != 0 {
            page.fill(0);
        }
        redo(kind & 0x7F, bytes, &mut page);
        rest = behind;
    }
}

/// One change of a page that is no node, or a sound one.
fn redo(kind: u8, bytes: &[u8], page: &mut [u8]) {
    let applied = change::apply(kind, bytes, page);
    if page::kind(page) == Some(PageKind::Node) {
        let sound = verify_structure(page, PAGE);
        assert!(sound.is_ok(), "change {kind} ({applied:?}) left: {sound:?}");
    }
    if applied.is_err() && page::kind(page) == Some(PageKind::Node) {
        // Redo of such a page ends here, but nothing may depend on that.
        node::any(page);
    }
}

/// A record of the log, whose checksum is made to fit, and its changes as redo applies them.
pub fn record(data: &[u8]) {
    let mut pages = BTreeMap::new();
    log::record(data, &mut |change| {
        let page = pages.entry(change.page.0 % 8).or_insert_with(|| vec![0; PAGE]);
        if change.init {
            page.fill(0);
        }
        redo(change.kind, change.bytes, page);
    });
}

/// Files beside the pages: the first byte says which. File header, double-write ring, list of hot pages.
pub fn files(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    match which % 3 {
        0 => header(bytes),
        1 => ring_file(bytes),
        _ => hot_block(bytes),
    }
}

fn file(name: &str, bytes: &[u8]) -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(1);
    let file = disk.open(Path::new(name), &OpenOptions::create_new()).expect("an empty disk");
    let mut whole = gannet_io::AlignedBuffer::zeroed(bytes.len().next_multiple_of(PAGE).max(PAGE));
    whole[..bytes.len()].copy_from_slice(bytes);
    file.write_at(Class::Maintenance, 0, &whole, Durability::Durable).expect("no faults are set");
    (disk, file)
}

/// Two copies of a file header, of which the sums are made to fit.
fn header(bytes: &[u8]) {
    let mut copies = vec![0; 2 * PAGE];
    let len = bytes.len().min(copies.len());
    copies[..len].copy_from_slice(&bytes[..len]);
    for (number, copy) in copies.chunks_mut(PAGE).enumerate() {
        let sum = checksum::seeded(0, &copy[meta::MAGIC_AT..meta::HEADER_SUM_AT]);
        put_u64(copy, meta::HEADER_SUM_AT, sum);
        let salt = get_u64(copy, meta::DATABASE_ID_AT);
        page::seal(copy, PageId(number as u64), salt);
    }
    let (_disk, file) = file("f", &copies);
    if let Ok(mut found) = meta::Meta::read(&*file) {
        let _ = found.is_lone(&*file);
        found.sequence = found.sequence.min(u64::MAX - 1);
        // What is written over one copy is what is read: the other one is older.
        if found.page_size == PAGE {
            found.write(&*file).expect("no faults are set");
            assert_eq!(meta::Meta::read(&*file).expect("it was written just now").sequence, found.sequence);
        }
    }
    let _ = meta::read_mark(&*file);
}

/// A slot of the ring without its checksum, and pages, whose checksums are made to fit. The data file has zeros.
fn ring_file(bytes: &[u8]) {
    let mut slot = vec![0; (8 + bytes.len()).next_multiple_of(PAGE).clamp(2 * PAGE, ring::slot_bytes(PAGE))];
    let len = bytes.len().min(slot.len() - 8);
    slot[8..8 + len].copy_from_slice(&bytes[..len]);
    let (head, pages) = slot.split_at_mut(ring::SLOT_HEADER);
    let sum = checksum::seeded(SALT, &head[8..]);
    put_u64(head, 0, sum);
    for (page, id) in pages.chunks_mut(PAGE).zip(head[ring::LIST_AT..].chunks_exact(16)) {
        page::seal(page, PageId(get_u64(id, 0)), SALT);
    }
    let (_ring_disk, ring) = file("ring", &slot);
    ring.set_len(ring::slot_bytes(PAGE) as u64).expect("no faults are set");
    let (data_disk, data) = file("data", &[0; 16 * PAGE]);
    let queue = data_disk.queue(4).expect("a queue");
    let healed = ring::heal(&*ring, &data, &*queue, PAGE, SALT).expect("no faults are set");
    assert!(healed.pages.is_empty() && healed.unreadable.is_empty(), "zeros are no damage");
    for id in 0..16 {
        let mut page = gannet_io::AlignedBuffer::zeroed(PAGE);
        data.read_at(Class::Maintenance, id * PAGE as u64, &mut page).expect("no faults are set");
        assert_ne!(page::verify(&page, PageId(id), SALT), page::Verdict::Damaged, "page {id}");
    }
    assert_eq!(data.len().expect("no faults are set"), 16 * PAGE as u64);
}

/// A block of the list of hot pages without its checksum.
fn hot_block(bytes: &[u8]) {
    let mut block = vec![0; page_list::BLOCK];
    let len = bytes.len().min(block.len() - 8);
    block[8..8 + len].copy_from_slice(&bytes[..len]);
    let sum = checksum::seeded(SALT, &block[8..]);
    put_u64(&mut block, 0, sum);
    let generation = page_list::decode(&block, SALT).expect("the checksum fits");
    let pages: Vec<_> = page_list::pages_of(&block).collect();
    if pages.is_sorted() {
        let taken = page_list::encode(&pages, generation, SALT, &mut block);
        assert_eq!(page_list::decode(&block, SALT), Some(generation));
        assert!(page_list::pages_of(&block).eq(pages[..taken].iter().copied()));
    }
}
