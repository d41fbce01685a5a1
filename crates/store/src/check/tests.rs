//! Undo that makes no sense, on pages whose checksum is right.

use crate::entry::Entry;
use crate::mtr::Mtr;
use crate::page::{get_u16, get_u64};
use crate::shared::Shared;
use crate::tree::{BTree, TreeRoot};
use crate::undo::{self, UndoKind};
use crate::{CreateOptions, Database, Engine, EngineOptions, Error, OpenOptions, TransactionOptions, Tree};
use gannet_base::PageId;
use gannet_io::sim::SimDisk;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Where a record has the length of its key, and the undo of the version before.
const KEY_LEN_AT: usize = 6;
const PREVIOUS_UNDO_AT: usize = 40;
/// Where the key is, where there was a version before.
const KEY_AT: usize = 48;

fn create() -> (Database, Tree) {
    let options = EngineOptions { memory: 16 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    let options = OpenOptions { sweep: false, warm: false, ..OpenOptions::default() };
    let db = engine.create(Path::new("c.gnt"), &create, &options).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    txn.commit().unwrap();
    (db, tree)
}

/// Changes some bytes of the undo record of a row's newest version; says where it lies.
fn damage(
    shared: &Shared,
    root: &TreeRoot,
    key: &[u8],
    change: impl FnOnce(crate::entry::UndoPtr, &[u8]) -> (usize, Vec<u8>),
) -> PageId {
    let core = &*shared.core;
    let payload = BTree::new(core, root).get(key).unwrap().unwrap();
    let at = Entry::decode(&payload).unwrap().undo;
    let mut mtr = Mtr::new(core);
    let part = mtr.latch(at.page()).unwrap();
    let (offset, bytes) = change(at, &mtr.page(part)[at.offset()..]);
    mtr.patch(part, at.offset() + offset, &bytes);
    mtr.commit().unwrap();
    at.page()
}

/// Check and sweep took the number of the list's first page from behind the value's end, and ended the process.
#[test]
fn an_undo_record_whose_long_value_has_no_whole_reference_is_a_damaged_one() {
    let (db, tree) = create();
    for value in [&[7; 20_000][..], b"short"] {
        let mut txn = db.begin(TransactionOptions::default());
        txn.put(&tree, b"row", value).unwrap();
        txn.commit().unwrap();
    }
    let shared = Arc::clone(&db.begin(TransactionOptions::default()).shared);
    let root = shared.find_tree(tree.id()).unwrap();
    let page = damage(&shared, &root, b"row", |_, record| {
        (KEY_LEN_AT, (get_u16(record, KEY_LEN_AT) + 4).to_le_bytes().to_vec())
    });
    let report = db.check().unwrap();
    let found =
        |finding: &&crate::Finding| finding.page == page && finding.what.contains("no undo record at");
    assert!(report.findings.iter().any(|finding| found(&finding)), "{:#?}", report.findings);
    db.sweep().unwrap();
    assert!(
        undo::records(
            &shared.core.pool.shared(&shared.core.volume, page, crate::pool::Access::Normal).unwrap(),
            page
        )
        .is_err()
    );
}

/// A check that came upon it never ended, and nobody could cancel it.
#[test]
fn a_history_that_leads_back_to_itself_is_found() {
    let (db, tree) = create();
    let mut txn = db.begin(TransactionOptions::default());
    for value in [b"one", b"two"] {
        txn.put(&tree, b"row", value).unwrap();
    }
    let shared = Arc::clone(&txn.shared);
    let root = shared.find_tree(tree.id()).unwrap();
    let itself = |at: crate::entry::UndoPtr, record: &[u8]| {
        assert_eq!(record[2], UndoKind::Update as u8);
        assert_ne!(get_u64(record, PREVIOUS_UNDO_AT), at.0);
        (PREVIOUS_UNDO_AT, at.0.to_le_bytes().to_vec())
    };
    damage(&shared, &root, b"row", itself);
    let report = db.check().unwrap();
    let found =
        |finding: &crate::Finding| finding.tree == tree.id() && finding.what.contains("leads back to");
    assert!(report.findings.iter().any(found), "{:#?}", report.findings);
    std::mem::forget(txn);
}

/// The same of the entry of a tree that an open transaction has dropped and made again.
#[test]
fn a_history_of_the_catalog_that_leads_back_to_itself_is_found() {
    let (db, _) = create();
    let mut txn = db.begin(TransactionOptions::default());
    assert!(txn.drop_tree("t").unwrap());
    txn.create_tree("t").unwrap();
    let shared = Arc::clone(&txn.shared);
    damage(&shared, &shared.catalog, b"t", |at, _| (PREVIOUS_UNDO_AT, at.0.to_le_bytes().to_vec()));
    let report = db.check().unwrap();
    let found = |finding: &crate::Finding| {
        finding.what.contains("the history of tree") && finding.what.contains("leads back to")
    };
    assert!(report.findings.iter().any(found), "{:#?}", report.findings);
    std::mem::forget(txn);
}

/// A reader took what another row was before for this one's.
#[test]
fn a_record_of_another_row_was_read_as_a_version_of_this_one() {
    let (db, tree) = create();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"row", b"old").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"row", b"new").unwrap();
    let shared = Arc::clone(&txn.shared);
    let root = shared.find_tree(tree.id()).unwrap();
    let mut reader = db.begin(TransactionOptions::default());
    assert_eq!(reader.get(&tree, b"row").unwrap().unwrap(), b"old");
    damage(&shared, &root, b"row", |_, record| {
        assert_eq!(&record[KEY_AT..][..3], b"row");
        (KEY_AT, b"now".to_vec())
    });
    let is_told = |error: Error| assert!(error.to_string().contains("record of another one"), "{error}");
    is_told(reader.get(&tree, b"row").unwrap_err());
    let mut cursor = reader.cursor(&tree, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    is_told(cursor.next().map(drop).unwrap_err());
    drop(cursor);
    std::mem::forget(txn);
}

/// A reader followed it for ever.
#[test]
fn a_reader_of_a_history_that_leads_back_to_itself_never_came_back() {
    let (db, tree) = create();
    let mut txn = db.begin(TransactionOptions::default());
    for value in [b"one", b"two"] {
        txn.put(&tree, b"row", value).unwrap();
    }
    let shared = Arc::clone(&txn.shared);
    let root = shared.find_tree(tree.id()).unwrap();
    damage(&shared, &root, b"row", |at, _| (PREVIOUS_UNDO_AT, at.0.to_le_bytes().to_vec()));
    let error = db.begin(TransactionOptions::default()).get(&tree, b"row").unwrap_err().to_string();
    assert!(error.contains("leads back to itself"), "{error}");
    std::mem::forget(txn);
}

/// Of one that had the place of another, which was freed meanwhile, it was said, too; these are there at a time.
#[test]
fn two_undo_segments_at_one_place_are_found() {
    let (db, tree) = create();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"row", b"one").unwrap();
    txn.commit().unwrap();
    let shared = Arc::clone(&db.begin(TransactionOptions::default()).shared);
    let known = super::read_segments(&shared, &super::Findings::default());
    let segment = *known.values().next().unwrap();
    let other = undo::Segment { sequence: segment.sequence + 1, ..segment };
    BTree::new(&shared.core, &shared.undo_directory).put(&other.key(), &other.value()).unwrap();
    let report = db.check().unwrap();
    let found = |finding: &crate::Finding| finding.what.contains("begins where");
    assert!(report.findings.iter().any(found), "{:#?}", report.findings);
    std::mem::forget(db);
}
